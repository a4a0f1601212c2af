"""Colors as hue, saturation and value, all in [0, 1], in double precision.

Levels are truncated, not rounded, so the last bit matters: OpenCV's conversion in single precision
would change many pixels by one level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["to_hsv", "to_rgb"]

Plane = NDArray[np.float64]

# Which of (value, low, falling, rising) is red, green and blue in each sixth of the hue circle.
_CHANNELS = np.array([[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]]).T


def to_hsv(image: NDArray[np.float64]) -> tuple[Plane, Plane, Plane]:
    """Returns hue, saturation and value of an RGB image in [0, 1]."""
    rgb = np.ascontiguousarray(np.moveaxis(image, 2, 0))
    value = rgb.max(axis=0)
    spread = value - rgb.min(axis=0)
    gray = spread == 0
    divisor = np.where(gray, 1, spread)
    red, green, blue = rgb
    hue = np.select(
        [blue == value, green == value],
        [4 + (red - green) / divisor, 2 + (blue - red) / divisor],
        (green - blue) / divisor,
    )
    saturation = spread / np.where(gray, 1, value)
    return np.where(gray, 0, hue / 6 % 1), saturation, value


def to_rgb(hue: Plane, saturation: Plane, value: Plane) -> NDArray[np.float64]:
    """Returns the RGB image of hue, saturation and value."""
    sixth = np.floor(hue * 6)
    part = hue * 6 - sixth
    low = value * (1 - saturation)
    falling = value * (1 - part * saturation)
    rising = value * (1 - (1 - part) * saturation)
    levels = np.stack([value, low, falling, rising])
    rgb = np.take_along_axis(levels, _CHANNELS[:, sixth.astype(int) % 6], axis=0)
    return np.moveaxis(rgb, 0, 2)
