"""Trains the shipped CIFAR-10 model: `python -m dab.models.train_cifar10 --data FOLDER`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dab.data.datasets.cifar10 import CIFAR10, CLASSES
from dab.models import training
from dab.models.vit import ViT

RECIPE = training.Recipe(epochs=20)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def crop_and_flip(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Shifts each image by up to four pixels, and mirrors it with p = 0.5."""
    cropped = training.crop(images, rng, margin=4)
    mirrored = rng.random(len(images)) < 0.5
    cropped[mirrored] = cropped[mirrored, :, ::-1]
    return cropped


def main() -> None:
    parser = training.options(__doc__, Path("cifar10.safetensors"), RECIPE)
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10")
    arguments = parser.parse_args()
    training.run(
        arguments,
        RECIPE,
        partial(ViT, len(CLASSES), mean=MEAN, std=STD, stem_norm="pixel"),
        CIFAR10(arguments.data, "train"),
        CIFAR10(arguments.data, "test"),
        crop_and_flip,
    )


if __name__ == "__main__":
    main()
