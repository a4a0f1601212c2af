"""What a run of one class does to the others: TENT on 500 images of a class, asked about all.

    python -m benchmarks.one_class

Explains why sorting a stream ruins TENT on some data and not on others (docs/results.md).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch

import dab
from dab.benchmark import Task, TaskRecipe
from dab.datasets.cache import cache_folder
from dab.datasets.images import Images, to_tensor
from dab.streams import Setting

# As many images as have 500 of each class.
DATA = {"glyphs": 50_000, "cifar10": 10_000}
CORRUPTIONS = ("gaussian_noise", "fog")
RATES = (2.5e-4, 1e-3, 4e-3)
CLASSES, RUN, BATCH, ASKED = 8, 500, 64, 1000


def change(task: Task, images: Images, lr: float) -> list[float]:
    """Points by which a run of a class changes the error over all classes, for a few of them."""
    labels, random = np.asarray(images.labels), np.random.default_rng(0)
    asked = random.choice(len(labels), ASKED, replace=False)
    questions, answers = to_tensor(images.batch(asked)), torch.from_numpy(labels[asked])
    found = []
    for label in random.choice(np.unique(labels), CLASSES, replace=False):
        run = np.flatnonzero(labels == label)[:RUN]
        with dab.create("tent", task.model(), lr=lr) as adapter:
            error = -wrong(adapter.predict(questions), answers)
            for batch in np.split(run, range(BATCH, len(run), BATCH)):
                adapter(to_tensor(images.batch(batch)))
            found.append(error + wrong(adapter.predict(questions), answers))
    return found


def wrong(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return 100 * (logits.argmax(dim=1) != labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="what a run of one class does to the others")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(f"change of the error after {RUN} images of one class; mean and deviation of {CLASSES}")
    for data in chosen.data:
        task = TaskRecipe(data, samples=DATA[data]).create()
        for domain in task.data.domains(CORRUPTIONS, 5, Setting.parse("correlated"), chosen.cache):
            for lr in RATES:
                found = change(task, domain.parts[0], lr)
                points = f"{fmean(found):+6.1f} ± {stdev(found):.1f}"
                print(f"{data:<9}{domain.name:<16}lr={lr:<8g}{points}", flush=True)


if __name__ == "__main__":
    main()
