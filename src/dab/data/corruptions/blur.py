"""Blurs: each pixel becomes a mixture of its neighbors."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from dab.data.corruptions.filters import magnify, smear, smooth
from dab.data.corruptions.pixels import Image, to_levels, to_unit
from dab.data.corruptions.registry import register

__all__ = ["defocus_blur", "gaussian_blur", "glass_blur", "motion_blur", "zoom_blur"]


@register(
    small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(image: Image, constants: tuple[float, float], rng: np.random.Generator) -> Image:
    """A lens out of focus: every point becomes a disk."""
    return to_levels(cv2.filter2D(to_unit(image), -1, _disc(*constants)))


def _disc(radius: float, softness: float) -> NDArray[np.float32]:
    reach, blur_size = (8, 3) if radius <= 8 else (int(radius), 5)
    across = np.arange(-reach, reach + 1)
    disc = (across**2 + across[:, None] ** 2 <= radius**2).astype(np.float32)
    disc /= disc.sum()
    return cv2.GaussianBlur(disc, (blur_size, blur_size), softness).astype(np.float32)


@register(
    small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(image: Image, constants: tuple[float, int, int], rng: np.random.Generator) -> Image:
    """Frosted glass: pixels scattered in their neighborhood, between two Gaussian blurs.

    The published script intends to swap each pixel with a neighbor, starting at the bottom right.
    But it assigns views of one array, so the pixel takes the neighbor's value and the neighbor
    keeps it. The data sets were made that way, so this function does the same.
    """
    sigma, reach, passes = constants
    height, width = image.shape[:2]
    shuffled = to_levels(smooth(to_unit(image), sigma)).reshape(-1, 3)
    for _ in range(passes):
        shuffled = shuffled[_scatter(height, width, reach, rng)]
    return to_levels(smooth(to_unit(shuffled.reshape(image.shape)), sigma))


def _scatter(height: int, width: int, reach: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Returns, for each pixel in flat order, the pixel whose value it has after one pass.

    A pass visits the pixels in reverse order. So a pixel that reads a later one gets the value
    that the later one has already taken: it follows a chain of later pixels up to one that reads
    an earlier pixel or itself, and gets the value that this one took.
    """
    taken = np.arange(height * width)
    inner = taken.reshape(height, width)[
        reach + 1 : height - reach + 1, reach + 1 : width - reach + 1
    ]
    right, down = np.moveaxis(rng.integers(-reach, reach, size=(*inner.shape, 2)), 2, 0)
    inner += (width * down + right)[::-1, ::-1]  # drawn in the order of the pass
    end = np.maximum(taken, np.arange(taken.size))
    while not np.array_equal(further := end[end], end):  # doubles the steps along every chain
        end = further
    return taken[end]


@register(
    small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(image: Image, constants: tuple[int, float], rng: np.random.Generator) -> Image:
    """A camera moving along a line within 45 degrees of the horizontal."""
    radius, sigma = constants
    return np.rint(smear(image, radius, sigma, rng.uniform(-45, 45))).astype(np.uint8)


@register(
    small=tuple(np.arange(1, end, 0.01) for end in (1.06, 1.11, 1.16, 1.21, 1.26)),
    large=tuple(
        np.arange(1, end, step)
        for end, step in ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    ),
)
def zoom_blur(image: Image, factors: NDArray[np.float64], rng: np.random.Generator) -> Image:
    """A camera moving forward: the mean of the image and its enlargements."""
    blurred = []
    for plane in np.moveaxis(to_unit(image).astype(np.float32), 2, 0):
        total = np.zeros_like(plane)
        for factor in factors:
            total += magnify(plane, factor)
        blurred.append((plane + total) / (len(factors) + 1))
    return to_levels(np.stack(blurred, axis=2))


@register(small=(0.4, 0.6, 0.7, 0.8, 1), large=(1, 2, 3, 4, 6))
def gaussian_blur(image: Image, sigma: float, rng: np.random.Generator) -> Image:
    """A Gaussian blur."""
    return to_levels(smooth(to_unit(image), sigma))
