"""How long the paper's tables take on so many devices, on paper: `python -m benchmarks.scale`.

Each run is sequential and waits for the source run of its stream; of those that may start, the
longest goes first, as the engines do it. Lengths are images times the forwards that an image costs
in the method (docs/costs.md), at a speed that is given: nothing is measured here.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence

from dab.benchmark import Cell, TaskRecipe, suite
from dab.benchmark.tasks import task_factory

__all__ = ["hours", "paper"]


def paper() -> list[Cell]:
    """The cells of the paper's two tables."""
    return suite("paper").cells()


def published_images(cell: Cell) -> int:
    """The images of a cell's stream, without any data on disk."""
    images = task_factory(cell.data).count(cell, TaskRecipe(cell.data))
    assert images is not None
    return images


def hours(runs: Sequence[Cell], devices: int, speed: float) -> float:
    """When the last run ends, if each device makes `speed` forwards a second."""
    stream = [repr(cell.source()) for cell in runs]
    length = [published_images(cell) * cell.forwards / speed / 3600 for cell in runs]
    ready = [(-length[i], i) for i, cell in enumerate(runs) if cell.is_source]
    waiting = {stream[i]: [j for j in range(len(runs)) if stream[j] == stream[i]] for _, i in ready}
    heapq.heapify(ready)
    busy: list[tuple[float, int]] = []
    now = 0.0
    while ready or busy:
        while ready and len(busy) < devices:
            _, run = heapq.heappop(ready)
            heapq.heappush(busy, (now + length[run], run))
        now, run = heapq.heappop(busy)
        if runs[run].is_source:
            for other in waiting[stream[run]]:
                if other != run:
                    heapq.heappush(ready, (-length[other], other))
    return now


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--speed", type=float, default=1000, help="forwards a second of a device")
    options.add_argument("--devices", type=int, nargs="+", default=[1, 8, 32, 48, 64, 128, 500])
    chosen = options.parse_args()
    runs = paper()
    images = sum(published_images(cell) for cell in runs)
    cost = sum(published_images(cell) * cell.forwards for cell in runs)
    print(f"{len(runs)} runs, {images / 1e6:.1f} million images, {cost / 1e6:.0f} million forwards")
    total = cost / chosen.speed / 3600
    for devices in chosen.devices:
        time = hours(runs, devices, chosen.speed)
        print(f"{devices:5d} devices: {time:6.2f} hours, {total / time / devices:4.0%} busy")


if __name__ == "__main__":
    main()
