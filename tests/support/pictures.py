"""Picture files for tests."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(width: int = 224, height: int = 224, seed: int = 0) -> Image.Image:
    """A smooth scene with edges and noise, so that JPEG, resizing and cropping show."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
    scene = np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    scene[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
    noise = rng.integers(-20, 21, scene.shape)
    return Image.fromarray(np.clip(scene + noise, 0, 255).astype(np.uint8))


def jpeg(image: Image.Image, quality: int = 90, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, **options)
    return file.getvalue()


def plant(root: Path, *paths: str, width: int = 224, height: int = 224) -> None:
    """JPEG files, each with another picture."""
    for seed, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(jpeg(picture(width, height, seed)))
