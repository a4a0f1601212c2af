"""Speed of a stream with and without workers and cache: `python -m benchmarks.streams`.

The baseline is the source model: a slower stream makes it wait.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from dab.benchmark import TaskRecipe
from dab.streams import Setting, Stream

SAMPLES = 1000
CORRUPTIONS = ("gaussian_noise", "motion_blur", "zoom_blur", "frost", "jpeg_compression")


def seconds(batches: Iterable[object]) -> float:
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    task = TaskRecipe("glyphs", samples=SAMPLES).create()
    model = task.model()
    images = SAMPLES * len(CORRUPTIONS)

    def report(what: str, took: float, floor: float) -> None:
        print(f"{what:<34}{images / took:>9,.0f} images/s{took / floor:>8.2f} x the model")

    def stream(cache: Path) -> Stream:
        setting = Setting.parse("correlated")
        return Stream(task.data.domains(CORRUPTIONS, 5, setting, cache), setting)

    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        seconds(stream(Path(folder)))
        floor = -seconds(stream(Path(folder)))
        floor += seconds(model(batch.images) for batch in stream(Path(folder)))
        report("model only", floor, floor)
        for workers in (0, 1, 2):
            with tempfile.TemporaryDirectory() as empty:
                took = seconds(stream(Path(empty)).batches(workers=workers))
                report(f"computed with {workers} workers", took, floor)
        report("read from the cache", seconds(stream(Path(folder))), floor)


if __name__ == "__main__":
    main()
