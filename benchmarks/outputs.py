"""What output corrections do, shuffled and sorted: `python -m benchmarks.outputs`.

The source model's error in % over the 15 corruptions at severity 5, as one stream in batches of 64:
on 2,000 glyphs, or on the 10,000 test images of CIFAR-10 with `--cifar10 FOLDER`.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

from dab.corruptions import CORRUPTIONS, corrupt
from dab.datasets.cifar10 import CIFAR10
from dab.datasets.glyphs import Glyphs
from dab.models import zoo
from dab.outputs import create_output

SEEDS = (0, 1, 2)


@torch.no_grad()
def predictions(folder: str | None) -> tuple[list[Tensor], Tensor]:
    """Logits of the source model for each corruption, and the labels."""
    model = zoo.load("glyphs" if folder is None else "cifar10")
    data = Glyphs.of_split("test", 2000) if folder is None else CIFAR10(folder, "test")
    images = data.batch(range(len(data.labels)))
    logits = []
    for name in CORRUPTIONS:
        rng = np.random.default_rng(0)
        corrupted = np.stack([corrupt(image, name, 5, rng) for image in images])
        pixels = torch.from_numpy(corrupted).permute(0, 3, 1, 2).float() / 255
        logits.append(torch.cat([model(part) for part in pixels.split(100)]))
    return logits, torch.tensor(np.asarray(data.labels))


def error(output: str | None, logits: list[Tensor], labels: Tensor, order: Tensor) -> float:
    correction = create_output(output)
    wrong = 0
    for domain in logits:
        for part, truth in zip(domain[order].split(64), labels[order].split(64), strict=True):
            answer = part if correction is None else correction.correct(part, None)
            wrong += int((answer.argmax(dim=1) != truth).sum())
    return 100 * wrong / (len(labels) * len(logits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cifar10", metavar="FOLDER", help="of the data, instead of glyphs")
    logits, labels = predictions(parser.parse_args().cifar10)
    print(f"{'order':<10} {'seed':>4} {'none':>7} {'batch_prior':>12} {'causal_prior':>13}")
    for seed in SEEDS:
        shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
        by_label = shuffled[labels[shuffled].argsort(stable=True)]
        for name, order in (("shuffled", shuffled), ("sorted", by_label)):
            none, batch, causal = (
                error(output, logits, labels, order)
                for output in (None, "batch_prior", "causal_prior")
            )
            print(f"{name:<10} {seed:>4} {none:>7.2f} {batch:>12.2f} {causal:>13.2f}", flush=True)


if __name__ == "__main__":
    main()
