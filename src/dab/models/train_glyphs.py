"""Trains the shipped glyphs model: `python -m dab.models.train_glyphs`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dab.data.datasets.glyphs import CHARACTERS, Glyphs
from dab.models import training
from dab.models.vit import ViT

RECIPE = training.Recipe(epochs=3)
TRAIN_SIZE, TEST_SIZE = 80_000, 10_000


def main() -> None:
    training.run(
        training.options(__doc__, Path("glyphs.safetensors"), RECIPE).parse_args(),
        RECIPE,
        partial(ViT, len(CHARACTERS)),
        Glyphs.of_split("train", TRAIN_SIZE),
        Glyphs.of_split("test", TEST_SIZE),
    )


if __name__ == "__main__":
    main()
