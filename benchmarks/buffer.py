"""Time per insert, for buffer sizes M and class counts C: `python -m benchmarks.buffer`.

Measures the decisions of the policies alone and `Buffer.insert` with and without copying pixels,
on a shuffled and on a sorted stream of labels. The baseline is the usual implementation: lists
that are scanned for every sample.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import torch

from dab.buffers import BalancedPolicy, Buffer, CSTUPolicy, ImageStorage, PBRSPolicy

SAMPLES = 8192
BATCH = 64
IMAGE = (3, 32, 32)


class Scanning:
    """Makes the same decisions as BalancedPolicy by scanning classes and items."""

    def __init__(self, capacity: int, classes: int) -> None:
        self.capacity, self.classes = capacity, classes
        self.items: list[tuple[int, int]] = []
        self.insertions = 0

    def place(self, label: int) -> None:
        if len(self.items) < self.capacity:
            self.items.append((label, self.insertions))
        else:
            counts = [0] * self.classes
            for held, _ in self.items:
                counts[held] += 1
            most = max(counts)
            oldest = min(
                (inserted, slot)
                for slot, (held, inserted) in enumerate(self.items)
                if counts[held] == most
            )
            self.items[oldest[1]] = (label, self.insertions)
        self.insertions += 1


def microseconds(function: Callable[[], object], samples: int) -> float:
    """Returns the minimum of three timings, to exclude noise of the machine."""
    return min(_seconds(function) for _ in range(3)) / samples * 1e6


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def labels(classes: int, is_sorted: bool) -> list[int]:
    draw = random.Random(classes)
    drawn = [draw.randrange(classes) for _ in range(SAMPLES)]
    return sorted(drawn) if is_sorted else drawn


def measure(capacity: int, classes: int, is_sorted: bool) -> dict[str, float]:
    stream = labels(classes, is_sorted)
    uncertainty = [random.Random(0).random() for _ in range(SAMPLES)]
    balanced = BalancedPolicy(capacity, classes)
    cstu = CSTUPolicy(capacity, classes)
    pbrs = PBRSPolicy(capacity, classes, torch.Generator().manual_seed(0))
    scanning = Scanning(capacity, classes)
    for label in range(capacity):  # full from the start
        for policy in (balanced, pbrs, scanning):
            policy.place(label % classes)
        cstu.place(label % classes, 0.5)

    images = torch.rand(BATCH, *IMAGE)
    buffer = Buffer(BalancedPolicy(capacity, classes), ImageStorage(capacity, "native"))
    batches = [stream[start : start + BATCH] for start in range(0, SAMPLES, BATCH)]
    storage = ImageStorage(capacity, "native")
    slots = [[row % capacity for row in range(BATCH)] for _ in batches]

    def insert() -> None:
        for batch in batches:
            buffer.insert(images, batch)

    def copy() -> None:
        for chosen in slots:
            storage.write(chosen, storage.encode(images)[torch.arange(BATCH)])

    few = stream[:256]
    return {
        "balanced": microseconds(lambda: [balanced.place(label) for label in stream], SAMPLES),
        "cstu": microseconds(
            lambda: [cstu.place(*fact) for fact in zip(stream, uncertainty, strict=True)], SAMPLES
        ),
        "pbrs": microseconds(lambda: [pbrs.place(label) for label in stream], SAMPLES),
        "scanning": microseconds(lambda: [scanning.place(label) for label in few], len(few)),
        "insert": microseconds(insert, SAMPLES),
        "copy": microseconds(copy, SAMPLES),
    }


def main() -> None:
    torch.set_num_threads(1)
    print("microseconds per sample; 'over copy': Buffer.insert minus the copy of 3x32x32 pixels")
    print(f"{'M':>5} {'C':>5} {'stream':>9} {'balanced':>9} {'CSTU':>7} {'PBRS':>7} ", end="")
    print(f"{'over copy':>10} {'copy':>7} {'scanning':>9} {'ratio':>7}")
    for capacity in (64, 256, 1024, 4096):
        for classes in (10, 100, 1000):
            for is_sorted in (False, True):
                cost = measure(capacity, classes, is_sorted)
                print(
                    f"{capacity:>5} {classes:>5} {'sorted' if is_sorted else 'shuffled':>9} "
                    f"{cost['balanced']:>9.2f} {cost['cstu']:>7.2f} {cost['pbrs']:>7.2f} "
                    f"{cost['insert'] - cost['copy']:>10.2f} {cost['copy']:>7.2f} "
                    f"{cost['scanning']:>9.1f} {cost['scanning'] / cost['balanced']:>6.0f}x"
                )


if __name__ == "__main__":
    main()
