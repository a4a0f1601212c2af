"""One table of all methods: `python -m benchmarks.methods` (docs/methods.md).

What each trains, which statistics its BatchNorm layers use, the passes that its paper needs, its
measured cost (`python -m benchmarks.step`), the size of its state, and the error of the BatchNorm
ResNet of `benchmarks.batch_norm` on glyphs: shuffled, sorted by class, and one image per call.
"""

from __future__ import annotations

import argparse
import io
import logging
import warnings
from pathlib import Path

import torch

import dab
from benchmarks.batch_norm import Domain, error, streams, trained
from dab.data.cache import cache_folder

OPTIONS = {"dab": {"capacity": 64}, "deyo": {"layers": "all"}}
# With the options that a method needs for single images.
SINGLE = {"dab": {"capacity": 64, "admission": "running"}}
COLUMNS = ("method", "trains", "statistics", "forwards", "backwards", "cost", "state, KiB")
ORDERS = ("shuffled", "sorted", "single images")


def row(method: str, weights: Path, orders: dict[str, list[Domain]], single: int) -> list[str]:
    cls, options = dab.method(method), OPTIONS.get(method, {})
    errors = []
    for name in ("shuffled", "sorted"):
        adapter = dab.create(method, trained(weights), **options)
        errors.append(error(adapter, orders[name], batch_size=64))
    file = io.BytesIO()
    torch.save(adapter.state_dict(), file)
    alone = [(images[:single], labels[:single]) for images, labels in orders["shuffled"]]
    adapter = dab.create(method, trained(weights), **SINGLE.get(method, options))
    errors.append(error(adapter, alone, batch_size=1))
    forwards, backwards = map(str, cls.passes or ("", ""))
    facts = [method, cls.trains, cls.published["statistics"], forwards, backwards]
    size = f"{len(file.getvalue()) / 1024:,.0f}"
    return [*facts, f"{cls.forwards:g}", size, *(f"{value:.1f}" for value in errors)]


def main() -> None:
    parser = argparse.ArgumentParser(description="all methods in one table")
    parser.add_argument("methods", nargs="*", help="only these (default: all)")
    parser.add_argument("--weights", type=Path, default=Path("glyphs-bn.safetensors"))
    parser.add_argument("--samples", type=int, default=500, help="images per domain")
    parser.add_argument("--single", type=int, default=100, help="of those one by one")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # of EATA without source images
    warnings.simplefilter("ignore")
    orders = streams(chosen.samples, chosen.cache)
    print(f"| {' | '.join([*COLUMNS, *ORDERS])} |")
    print(f"| {' | '.join(['---'] * 3 + ['---:'] * 7)} |")
    for method in chosen.methods or dab.methods():
        print(f"| {' | '.join(row(method, chosen.weights, orders, chosen.single))} |", flush=True)


if __name__ == "__main__":
    main()
