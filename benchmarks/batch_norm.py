"""Statistics of BatchNorm layers, in both label orders: `python -m benchmarks.batch_norm`.

Trains a small BatchNorm ResNet on glyphs, unless its weights exist, and measures methods with
different `statistics=` on the four held-out corruptions, which are for choosing, or on the fifteen
of `--corruptions test`, which are for reporting (docs/methods.md).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

import dab
from dab.data.cache import cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.datasets.glyphs import CHARACTERS, Glyphs
from dab.data.images import to_tensor
from dab.models import training
from dab.models.checkpoints import fill, read
from dab.models.resnet import ResNet

RUNS = (
    "dab capacity=64",
    "dab capacity=64 statistics=batch",
    "dab capacity=64 statistics=source",
    "source",
    "source statistics=batch",
    "source statistics=ema",
    "tent",
    "roid",
    "roid statistics=source",
    "eata",
    "eata statistics=source",
    "sar",
    "sar statistics=source",
    "note",
    "rotta",
    "cotta",
    "adacontrast",
)
NET = partial(ResNet, len(CHARACTERS), blocks=2, norm="batch")
Domain = tuple[Tensor, Tensor]  # images and labels


def trained(file: Path) -> nn.Module:
    if not file.exists():
        recipe = training.Recipe(epochs=3, lr=3e-3)
        chosen = argparse.Namespace(out=file, epochs=recipe.epochs, threads=1)
        splits = Glyphs.of_split("train", 40_000), Glyphs.of_split("test", 5_000)
        training.run(chosen, recipe, NET, *splits)
    net = NET()
    fill(net, read(file).weights, file)
    return net


def streams(samples: int, corruptions: Sequence[str], cache: Path) -> dict[str, list[Domain]]:
    """The same images of every domain, shuffled and sorted by label."""
    clean = Glyphs.of_split("test", 10_000)
    shuffled = np.random.default_rng(0).permutation(samples)
    orders = {
        "shuffled": shuffled,
        "sorted": shuffled[np.argsort(clean.labels[shuffled], kind="stable")],
    }
    domains = [CorruptedImages(clean, corruption, 5, cache) for corruption in corruptions]
    return {
        name: [
            (to_tensor(domain.batch(order)), torch.as_tensor(clean.labels[order]))
            for domain in domains
        ]
        for name, order in orders.items()
    }


def error(adapter: dab.Adapter, domains: list[Domain], batch_size: int) -> float:
    """The mean error over the domains of one stream, in percent."""
    errors = []
    for images, labels in domains:
        answers = torch.cat([adapter(batch) for batch in images.split(batch_size)])
        errors.append(100 * (answers.argmax(dim=1) != labels).double().mean().item())
    return fmean(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description="statistics of BatchNorm layers, measured")
    parser.add_argument("--weights", type=Path, default=Path("glyphs-bn.safetensors"))
    parser.add_argument("--method", action="append", help=f"(default: {', '.join(RUNS)})")
    parser.add_argument("--samples", type=int, default=500, help="images per domain")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--corruptions", choices=("held-out", "test"), default="held-out")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # of single images, and of EATA without source images
    corruptions = HELD_OUT if chosen.corruptions == "held-out" else CORRUPTIONS
    orders = streams(chosen.samples, corruptions, chosen.cache)
    print("| method | statistics | shuffled | sorted |\n| --- | --- | ---: | ---: |")
    for run in chosen.method or RUNS:
        method, *options = run.split()
        values = dict(option.split("=") for option in options)
        errors = []
        for domains in orders.values():
            parsed = {name: int(v) if v.isdigit() else v for name, v in values.items()}
            adapter = dab.create(method, trained(chosen.weights), **parsed)
            errors.append(error(adapter, domains, chosen.batch_size))
        cells = [run, str(adapter.options["statistics"]), *(f"{value:.1f}" for value in errors)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
