"""Images as 8-bit levels and as numbers in [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Image", "to_levels", "to_unit"]

Image = NDArray[np.uint8]


def to_unit(image: Image) -> NDArray[np.float64]:
    """Levels as numbers in [0, 1]."""
    return image / 255.0


def to_levels(unit: NDArray[Any]) -> Image:
    """Numbers in [0, 1] as levels: clipped, and cut off rather than rounded, as published."""
    levels: Image = (np.clip(unit, 0, 1) * 255).astype(np.uint8)
    return levels
