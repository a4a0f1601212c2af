"""How a run of one class affects the others: `python -m benchmarks.one_class`.

Runs TENT on 500 images of one class, or of all classes, and measures its error on all classes.
Explains when the order of a stream matters for entropy minimization (docs/results.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from numpy.typing import NDArray

import dab
from dab.benchmark import Task, TaskRecipe
from dab.data.cache import cache_folder
from dab.data.images import Images, to_tensor
from dab.streams import Setting

# Enough images for 500 of each class.
DATA = {"glyphs": 50_000, "cifar10": 10_000}
CORRUPTION = "gaussian_noise"
RATES = (2.5e-4, 1e-3, 4e-3)
RUNS, LENGTH, BATCH, ASKED = 8, 500, 64, 1000


def change(task: Task, images: Images, lr: float, run: NDArray[np.int64]) -> float:
    """Returns the change of TENT's error on all classes, in points, by a run of images."""
    labels = torch.as_tensor(images.labels)
    asked = np.random.default_rng(0).choice(len(labels), ASKED, replace=False)
    questions, answers = to_tensor(images.batch(asked)), labels[asked]
    with dab.create("tent", task.model(), lr=lr) as adapter:
        before = adapter.predict(questions)
        for batch in np.split(run, range(BATCH, len(run), BATCH)):
            adapter(to_tensor(images.batch(batch)))
        after = adapter.predict(questions)
    return wrong(after, answers) - wrong(before, answers)


def wrong(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return 100 * (logits.argmax(dim=1) != labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="how a run of one class affects the others")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"change of the error after {LENGTH} images, mean ± deviation of {RUNS} runs")
    for data, samples in DATA.items():
        task, setting = TaskRecipe(data, samples=samples).create(), Setting.parse("correlated")
        (domain,) = task.data.domains([CORRUPTION], 5, setting, chosen.cache)
        labels, random = np.asarray(domain.parts[0].labels), np.random.default_rng(1)
        classes = random.choice(np.unique(labels), RUNS, replace=False)
        runs = {
            "one class": [np.flatnonzero(labels == label)[:LENGTH] for label in classes],
            "all classes": [random.choice(len(labels), LENGTH, replace=False) for _ in classes],
        }
        for lr in RATES:
            for kind, kinds in runs.items():
                points = [change(task, domain.parts[0], lr, run) for run in kinds]
                figure = f"{fmean(points):+6.1f} ± {stdev(points):.1f}"
                print(f"{data:<9}lr={lr:<8g}{kind:<12}{figure}", flush=True)


if __name__ == "__main__":
    main()
