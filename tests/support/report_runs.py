"""A folder of small real runs to report on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dab.benchmark import run
from dab.streams import Shard
from tests.support.benchmark_task import tiny_cell, tiny_task

# Two seeds of each on the sorted stream; on the shuffled one, one.
CORRELATED = [
    ("source", {}),
    ("tent", {"lr": 0.3}),  # enough to ruin it
    ("note", {}),
    ("rotta", {}),
    ("dab", {}),
    ("dab", {"capacity": 8}),
]


def make_runs(folder: Path) -> Path:
    """Run them; the folder of the results."""
    out, task = folder / "tiny runs", tiny_task()
    cells = [
        replace(cell, options={**cell.options, **options})
        for seed in (0, 1)
        for method, options in CORRELATED
        for cell in [tiny_cell(method, "correlated", seed=seed)]
    ]
    for cell in [*cells, tiny_cell("source"), tiny_cell("dab")]:
        run(cell, task, out, cache=folder / "cache")
    return out


def make_pieces(folder: Path, seeds: Sequence[int] = (0, 1)) -> Path:
    """DAB on a stream that is dealt out to four, in pieces of 53, 53, 52 and 52 images."""
    task = tiny_task()
    for seed in seeds:
        for shard in Shard.parse("4"):
            cell = replace(tiny_cell("dab", "correlated", seed=seed), shard=shard)
            run(cell, task, folder / "runs", cache=folder / "cache")
    return folder / "runs"
