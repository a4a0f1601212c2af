"""Speed of the corruptions on one core: `python -m benchmarks.corruptions`.

Images per second at severity 5, from the median CPU time per image.
"""

from __future__ import annotations

import statistics
import time

import cv2
import numpy as np

from dab.data.corruptions import CORRUPTIONS, HELD_OUT, corrupt

SIZES = (224, 32)
SECONDS = 1.0  # per measurement


def images_per_second(name: str, size: int) -> float:
    """Returns the number of images of this size that one core corrupts per second."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
    image = cv2.GaussianBlur(noise, (0, 0), 2).astype(np.uint8)
    corrupt(image, name, 5, rng)
    times: list[float] = []
    while sum(times) < SECONDS:
        start = time.process_time()
        corrupt(image, name, 5, rng)
        times.append(time.process_time() - start)
    return 1 / statistics.median(times)


def main() -> None:
    cv2.setNumThreads(1)
    print("corruption".ljust(20), *(f"{size:>5} px" for size in SIZES))
    for name in CORRUPTIONS + HELD_OUT:
        print(name.ljust(20), *(f"{images_per_second(name, size):8.0f}" for size in SIZES))


if __name__ == "__main__":
    main()
