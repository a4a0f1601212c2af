"""Pictures, in files and in memory."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from dab.utils.fingerprint import fingerprint


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


class Pictures:
    """Random images in memory that keep account of what has been read of them."""

    def __init__(self, labels, key=0, size=(16, 18), tracks=None):
        self.labels = np.asarray(labels, np.int64)
        self.tracks = None if tracks is None else np.asarray(tracks, np.int64)
        rng = np.random.default_rng(key)
        self.images = rng.integers(0, 256, (len(self.labels), *size, 3), np.uint8)
        self.read: list[int] = []

    def __len__(self):
        return len(self.labels)

    def batch(self, indices):
        self.read += np.asarray(indices).tolist()
        return self.images[np.asarray(indices)]

    @property
    def fingerprint(self):
        return fingerprint(self.images, self.labels)


LABELS = np.arange(60) % 7
