"""Folders of small real runs to report on, and changes to them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dab.benchmark import Cell, Job, TaskRecipe
from dab.benchmark.engines import Resources, dispatch
from dab.benchmark.engines.inline import Inline
from dab.benchmark.engines.view import View
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import FILE, Result, results
from dab.benchmark.running.progress_file import PROGRESS, Progress
from dab.streams import Shard
from dab.utils import files
from dab.utils.typed_json import to_json
from tests.support.benchmark_task import tiny_cell

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
    cells = [
        replace(cell, options={**cell.options, **options})
        for seed in (0, 1)
        for method, options in CORRELATED
        for cell in [tiny_cell(method, "correlated", seed=seed)]
    ]
    return _run_all([*cells, tiny_cell("source"), tiny_cell("dab")], folder, "tiny runs")


def make_corrected(folder: Path) -> Path:
    """The source model with an output correction that has shares, and with one that has none."""
    cell = tiny_cell("source", "correlated")
    cells = [replace(cell, options={"output": output}) for output in ("markov", "batch_prior")]
    return _run_all([cell, *cells], folder, "runs")


def make_pieces(folder: Path, seeds: Sequence[int] = (0, 1)) -> Path:
    """DAB on a stream that is split over four, in pieces of 53, 53, 52 and 52 images."""
    cells = [
        replace(tiny_cell(method, "correlated", seed=seed), shard=shard)
        for seed in seeds
        for shard in Shard.parse("4")
        for method in ("source", "dab")
    ]
    return _run_all(cells, folder, "runs")


def _run_all(cells: Sequence[Cell], folder: Path, name: str) -> Path:
    jobs = [Job(cell, TaskRecipe("tiny"), folder / name, folder / "cache") for cell in cells]
    dispatch(jobs, Inline(Resources()), View())
    return folder / name


def save(result: Result, out: Path) -> Path:
    """Write a result into the folder of its run; the folder."""
    folder = out / result.card.run_id
    result.write(folder)
    return folder


def add_variants(out: Path, method: str, *changes: dict[str, Any]) -> None:
    """For each run of a method, add others whose cards differ as given."""
    for result in list(results(out)):
        if result.card.method == method:
            for change in changes:
                save(replace(result, card=replace(result.card, **change)), out)


def rewrite(out: Path, change: Callable[[RunCard], RunCard]) -> None:
    """Give every run another card."""
    for result in list(results(out)):
        old = out / result.card.run_id
        folder = save(replace(result, card=change(result.card)), out)
        if folder != old:
            if (old / "trace.npz").exists():
                shutil.copy(old / "trace.npz", folder)
            shutil.rmtree(old)


def take_back(result: Result, out: Path, seen: int, at: float | None = None) -> Path:
    """Make a finished run unfinished, after `seen` of its images; its folder."""
    folder = out / result.card.run_id
    windows = result.windows[: seen // result.window]
    now = time.time() if at is None else at
    progress = Progress(result.card, seen, result.card.data.samples, result.window, windows, now)
    files.write(folder / PROGRESS, json.dumps(to_json(progress)))
    (folder / FILE).unlink(missing_ok=True)
    return folder
