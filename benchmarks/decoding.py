"""Speed of reading image files on one core, compared with Pillow: `python -m benchmarks.decoding`.

Images per second from the median CPU time per image, on generated JPEGs: of the size of ImageNet-C,
which are only decoded, and of the usual size of ImageNet, which are also resized to 256 and cropped
to 224.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image

from dab.data.decoding import read
from dab.data.transform import Transform

FILES = 20
SECONDS = 2.0  # per measurement
BILINEAR = Image.Resampling.BILINEAR


def make(folder: Path, width: int, height: int, quality: int) -> list[Path]:
    """Makes JPEG files about as large as photographs of this size."""
    rng = np.random.default_rng(0)
    files = []
    for number in range(FILES):
        noise = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        scene = 3.0 * cv2.GaussianBlur(noise, (0, 0), 2) - 256
        files.append(folder / f"{width}_{number}.JPEG")
        Image.fromarray(np.clip(scene, 0, 255).astype(np.uint8)).save(files[-1], quality=quality)
    return files


def by_pillow(file: Path, transform: Transform) -> np.ndarray:
    image = Image.open(io.BytesIO(file.read_bytes())).convert("RGB")
    if transform.resize is not None:
        shorter = min(image.size)
        width, height = (transform.resize * side // shorter for side in image.size)
        image = image.resize((width, height), BILINEAR)
    left, top = (round((side - transform.crop) / 2) for side in image.size)
    return np.array(image.crop((left, top, left + transform.crop, top + transform.crop)))


def images_per_second(
    reader: Callable[[Path, Transform], np.ndarray], files: list[Path], transform: Transform
) -> float:
    times: list[float] = []
    while sum(times) < SECONDS:
        for file in files:
            start = time.process_time()
            reader(file, transform)
            times.append(time.process_time() - start)
    return 1 / statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'file':<34}{'dab':>12}{'Pillow':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for width, height, transform in (
            (224, 224, Transform(None, 224)),
            (500, 375, Transform(256, 224)),
        ):
            files = make(Path(folder), width, height, quality=85)
            size = statistics.mean(file.stat().st_size for file in files)
            ours, pillow = (images_per_second(one, files, transform) for one in (read, by_pillow))
            name = f"{width} x {height}, {size / 1000:.0f} kB"
            print(f"{name:<34}{ours:>10,.0f}/s{pillow:>10,.0f}/s{ours / pillow:>8.2f}")


if __name__ == "__main__":
    main()
