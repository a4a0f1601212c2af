"""Filters that several corruptions share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage  # type: ignore[import-untyped]

__all__ = ["displace", "magnify", "smear", "smooth"]


def smooth(
    values: NDArray[Any], sigma: float, mode: str = "nearest", truncate: float = 4.0
) -> NDArray[np.float64]:
    """A Gaussian blur over height and width."""
    blurred: NDArray[np.float64] = ndimage.gaussian_filter(
        values, sigma, mode=mode, truncate=truncate, axes=(0, 1), output=np.float64
    )
    return blurred


def smear(image: NDArray[Any], radius: int, sigma: float, angle: float) -> NDArray[np.float64]:
    """A one-sided Gaussian blur in the direction `angle`, in degrees: ImageMagick's motion blur.

    Each tap reads the nearest pixel, and the edge pixel if it is outside of the image.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    right = np.ceil(steps * math.cos(math.radians(angle)) - 0.5).astype(int)
    down = np.ceil(steps * math.sin(math.radians(angle)) - 0.5).astype(int)
    height, width = image.shape[:2]
    reach = 2 * radius
    padded = np.pad(image, [(reach, reach), (reach, reach), (0, 0)][: image.ndim], mode="edge")
    blurred = np.zeros(image.shape)
    for weight, y, x in zip(weights, down + reach, right + reach, strict=True):
        blurred += weight * padded[y : y + height, x : x + width]
    return blurred


def magnify(plane: NDArray[Any], factor: float) -> NDArray[Any]:
    """Enlarges the center of a plane bilinearly to the size of the plane."""
    crop = []
    for size in plane.shape:
        kept = math.ceil(size / factor)
        start = (size - kept) // 2
        crop.append(slice(start, start + kept))
    enlarged: NDArray[Any] = ndimage.zoom(plane[tuple(crop)], factor, order=1)
    # Because of rounding up, there may be an extra pixel on each side.
    top, left = np.subtract(enlarged.shape, plane.shape) // 2
    return enlarged[top : top + plane.shape[0], left : left + plane.shape[1]]


def displace(plane: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Samples a plane bilinearly at these positions. Outside of its edges, it is mirrored."""
    moved: NDArray[Any] = ndimage.map_coordinates(plane, (rows, columns), order=1, mode="reflect")
    return moved
