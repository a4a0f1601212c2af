"""How long the paper's tables take on a number of devices, estimated: `python -m benchmarks.scale`.

Each run is sequential and waits for the source run of its stream. Of the runs that may start, the
longest goes first, as in the engines. The length of a run is its images times the forwards per
image of its method (docs/costs.md), at a given speed. Nothing is measured.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence

from dab.benchmark import Cell, suite
from dab.benchmark.tasks.registry import task_factory

__all__ = ["Run", "hours", "paper"]

Run = tuple[Cell, int]
"""A cell and the images in its stream."""


def paper() -> list[Run]:
    """The runs of the paper's two tables."""
    grid = suite("paper")
    recipes = grid.recipes()
    images = [task_factory(cell.data).count(cell, recipes[cell.data]) for cell in grid.cells()]
    return [(cell, count) for cell, count in zip(grid.cells(), images, strict=True) if count]


def hours(runs: Sequence[Run], devices: int, speed: float) -> float:
    """When the last run ends, if each device makes `speed` forwards per second."""
    stream = [repr(cell.source()) for cell, _ in runs]
    length = [images * cell.forwards / speed / 3600 for cell, images in runs]
    ready = [(-length[i], i) for i, (cell, _) in enumerate(runs) if cell.is_source]
    waiting = {stream[i]: [j for j in range(len(runs)) if stream[j] == stream[i]] for _, i in ready}
    heapq.heapify(ready)
    busy: list[tuple[float, int]] = []
    now = 0.0
    while ready or busy:
        while ready and len(busy) < devices:
            _, run = heapq.heappop(ready)
            heapq.heappush(busy, (now + length[run], run))
        now, run = heapq.heappop(busy)
        if runs[run][0].is_source:
            for other in waiting[stream[run]]:
                if other != run:
                    heapq.heappush(ready, (-length[other], other))
    return now


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--speed", type=float, default=1000, help="forwards per second and device")
    options.add_argument("--devices", type=int, nargs="+", default=[1, 8, 32, 48, 64, 128, 500])
    chosen = options.parse_args()
    runs = paper()
    total_images = sum(images for _, images in runs)
    cost = sum(images * cell.forwards for cell, images in runs)
    print(
        f"{len(runs)} runs, {total_images / 1e6:.1f} million images, "
        f"{cost / 1e6:.0f} million forwards"
    )
    total = cost / chosen.speed / 3600
    for devices in chosen.devices:
        time = hours(runs, devices, chosen.speed)
        print(f"{devices:5d} devices: {time:6.2f} hours, {total / time / devices:4.0%} busy")


if __name__ == "__main__":
    main()
