"""Resizes and crops images of any size to the square that a classifier expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Interpolation", "Transform"]

Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Transform:
    """Resizes the shorter side with antialiasing and crops the center: bytes in, bytes out.

    Equals torchvision's Resize and CenterCrop on Pillow images, to within two of 255 levels per
    pixel. Normalization is part of the model instead.

    Args:
        resize: length of the shorter side before cropping; None does not resize.
        crop: side of the square.
        interpolation: "bilinear" or "bicubic", both antialiased.

    >>> Transform()(np.zeros((300, 500, 3), np.uint8)).shape
    (224, 224, 3)
    """

    resize: int | None = 256
    crop: int = 224
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.crop < 1:
            raise ValueError(f"crop must be at least 1 pixel, got {self.crop}")
        if self.resize is not None and self.resize < self.crop:
            raise ValueError(f"crop={self.crop} exceeds resize={self.resize}")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(
                f"interpolation must be 'bilinear' or 'bicubic', got {self.interpolation!r}"
            )

    def __call__(self, image: Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Transforms an array (height, width, 3) or any Pillow image to (crop, crop, 3)."""
        pixels = image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB"))
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ValueError(
                f"an image must be uint8 (height, width, 3), got {pixels.dtype} {pixels.shape}"
            )
        return self._center(pixels if self.resize is None else self._resized(pixels, self.resize))

    def _resized(self, pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
        height, width = pixels.shape[:2]
        shorter = min(height, width)
        size = side * height // shorter, side * width // shorter
        if size == (height, width):
            return pixels
        # Bytes are rounded after each of the two passes, over rows and over columns. Where a
        # bicubic kernel overshoots 0 or 255, the order of the passes matters by up to 30 levels.
        # torch always starts with the rows; Pillow 13 shrinks tall images columns first.
        if side < shorter and height > 2 * width:
            return self._interpolated(pixels.transpose(1, 0, 2), size[::-1]).transpose(1, 0, 2)
        return self._interpolated(pixels, size)

    def _interpolated(self, pixels: NDArray[np.uint8], size: tuple[int, ...]) -> NDArray[np.uint8]:
        # Copied, because torch warns about read-only arrays such as Pillow's. The view as
        # (1, 3, height, width) is channels-last, for which torch has its fastest kernel.
        planes = torch.from_numpy(pixels.copy(order="C")).permute(2, 0, 1)[None]
        resized = F.interpolate(planes, size=list(size), mode=self.interpolation, antialias=True)
        return resized[0].permute(1, 2, 0).numpy()

    def _center(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = pixels.shape[:2]
        if min(height, width) < self.crop:
            raise ValueError(
                f"an image of {height} x {width} pixels is smaller than the crop of {self.crop}: "
                "set resize"
            )
        # round() rounds to even, as torchvision does.
        top, left = (round((side - self.crop) / 2) for side in (height, width))
        return pixels[top : top + self.crop, left : left + self.crop].copy()
