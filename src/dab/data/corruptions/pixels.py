"""Conversion between 8-bit levels and numbers in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Image", "to_levels", "to_unit"]

Image = NDArray[np.uint8]


def to_unit(image: Image) -> NDArray[np.float64]:
    """Converts levels to numbers in [0, 1]."""
    return image / 255.0


def to_levels(unit: NDArray[Any]) -> Image:
    """Converts numbers in [0, 1] to levels: clipped, and truncated as in the published scripts."""
    levels: Image = (np.clip(unit, 0, 1) * 255).astype(np.uint8)
    return levels
