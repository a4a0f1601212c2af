"""Trains the net of GTSRB: `python -m dab.models.train_gtsrb --data PATH`.

It learns from every other track and is tested on the clean frames of the rest, which are the
tracks of the benchmark. `dab/gtsrb_convnet@FILE` loads it.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from dab.data.datasets.gtsrb import CLASSES, GTSRB
from dab.models import training
from dab.models.convnet import ConvNet

RECIPE = training.Recipe(epochs=40, lr=3e-3)
TURN, ZOOM, SHEAR, SHIFT = 0.26, 0.2, 0.15, 3.5  # at most: radians, shares, pixels
LIGHT, TINT = 0.5, 0.125  # at most, as logarithms


def augment(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Moves each image a little and changes its light: tracks differ in both.

    Signs are not mirrored, since left and right differ, and there is no weather.
    """
    return np.stack([relight(move(image, rng), rng) for image in images])


def move(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Turns, zooms, shears and shifts an image, and repeats its edges."""
    angle, zoom = rng.uniform(-TURN, TURN), 1 + rng.uniform(-ZOOM, ZOOM, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shear = np.array([[1, rng.uniform(-SHEAR, SHEAR)], [0, 1]])
    matrix = turn @ np.diag(zoom) @ shear
    center = np.array(image.shape[1::-1]) / 2 - 0.5
    offset = center - matrix @ center + rng.uniform(-SHIFT, SHIFT, 2)
    whole = np.column_stack([matrix, offset])
    moved = cv2.warpAffine(image, whole, image.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(moved, np.uint8)


def relight(image: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Changes gamma, exposure, tint and contrast of an image."""
    gamma, exposure, contrast = np.exp(rng.uniform(-LIGHT, LIGHT, 3))
    tint = np.exp(rng.uniform(-TINT, TINT, 3))
    light = (np.arange(256) / 255) ** gamma * exposure * tint[:, None]  # of each byte, by channel
    mean = np.mean([levels[band] for levels, band in zip(light, image[::4, ::4].T, strict=True)])
    table = 255 * (mean + contrast * (light - mean)).clip(0, 1)
    return np.asarray(cv2.LUT(image, np.ascontiguousarray(table.T[:, None], np.uint8)), np.uint8)


def main() -> None:
    parser = training.options(__doc__, Path("gtsrb.safetensors"), RECIPE)
    parser.add_argument("--data", type=Path, required=True, help="folder or .npz file of GTSRB")
    arguments = parser.parse_args()
    data = GTSRB(arguments.data)
    training.run(
        arguments,
        RECIPE,
        lambda: ConvNet(CLASSES),
        data.half("train"),
        data.half("test"),
        augment,
    )


if __name__ == "__main__":
    main()
