"""One table of all methods, measured: `python -m benchmarks.methods` (docs/methods.md).

What each trains, which statistics its BatchNorm layers use, the passes that its paper needs, its
cost counted and measured and its memory (`benchmarks.step`), the size of its state, and the error
of the ViT of glyphs on held-out corruptions: shuffled, sorted by class, and one image per call.
`--write` keeps the numbers for `dab methods`.
"""

from __future__ import annotations

import argparse
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import torch

import dab
from benchmarks import step
from benchmarks.batch_norm import Domain, error, streams
from dab.cli import measured
from dab.cli.measured import Measured
from dab.data.cache import cache_folder
from dab.data.corruptions import HELD_OUT
from dab.models.zoo import load

OPTIONS: dict[str, dict[str, Any]] = {
    "dab": {"capacity": 64},
    "sequence_dab": {"capacity": 64},
}
# What a method needs for single images.
SINGLE = {**OPTIONS, "dab": {"capacity": 64, "admission": "running"}}
FACTS = ("method", "trains", "statistics")
NUMBERS = ("passes", "counted", "cost", "memory, MiB", "state, KiB", "shuffled", "sorted", "single")


def measure(method: str, orders: dict[str, list[Domain]], single: int, calls: int) -> Measured:
    options, errors = OPTIONS.get(method, {}), {}
    alone = [(images[:single], labels[:single]) for images, labels in orders["shuffled"]]
    adapter = dab.create(method, load("glyphs"), **SINGLE.get(method, {}))
    errors["single"] = error(adapter, alone, batch_size=1)
    for name in ("shuffled", "sorted"):
        if adapter.one_at_a_time:  # and from the source each time: the order does not matter
            errors[name] = errors["single"]
            continue
        adapter = dab.create(method, load("glyphs"), **options)
        errors[name] = error(adapter, orders[name], batch_size=64)
    file = io.BytesIO()
    torch.save(adapter.state_dict(), file)
    cost = step.in_own_process(method, calls, pixels=64)
    return Measured(
        counted=round(cost["counted"], 1),
        cost=1.0 if method == "source" else round(cost["measured"], 1),
        memory=round(cost["memory"]),
        state=round(len(file.getvalue()) / 1024),
        **{name: round(value, 1) for name, value in errors.items()},
    )


def row(method: str, found: Measured) -> str:
    cls = dab.method(method)
    forwards, backwards = cls.passes or ("", "")
    facts = [method, cls.trains, cls.published["statistics"], f"{forwards} + {backwards}"]
    costs = [f"{found.counted:g}", f"{found.cost:g}", f"{found.memory:,.0f}", f"{found.state:,.0f}"]
    errors = [f"{value:.1f}" for value in (found.shuffled, found.sorted, found.single)]
    return f"| {' | '.join([*facts, *costs, *errors])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="all methods in one table")
    parser.add_argument("methods", nargs="*", help="only these (default: all)")
    parser.add_argument("--samples", type=int, default=128, help="images per domain")
    parser.add_argument("--single", type=int, default=32, help="of those one by one")
    parser.add_argument("--calls", type=int, default=8, help="to measure the cost with")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--write", action="store_true", help="keep the numbers in the package")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # of EATA without source images, and of single images
    warnings.simplefilter("ignore")
    orders = streams(chosen.samples, HELD_OUT, chosen.cache)
    print(f"| {' | '.join([*FACTS, *NUMBERS])} |")
    print(f"| {' | '.join(['---'] * len(FACTS) + ['---:'] * len(NUMBERS))} |")
    table = measured.read() if measured.FILE.exists() else {}
    for method in chosen.methods or dab.methods():
        table[method] = measure(method, orders, chosen.single, chosen.calls)
        print(row(method, table[method]), flush=True)
        if chosen.write:
            measured.write({name: table[name] for name in dab.methods() if name in table})


if __name__ == "__main__":
    main()
