"""From a picture of any size to the square that a classifier was trained for."""

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
    """Resizes the shorter side, antialiased, and cuts the center out: bytes in, bytes out.

    The geometry is that of torchvision's Resize and CenterCrop on Pillow images, and so are the
    pixels, to within two levels of 255. Normalization is no part of it: that is in the model.

    Args:
        resize: length of the shorter side before cropping; None leaves the picture as it is.
        crop: side of the square.
        interpolation: between pixels; both kinds are antialiased.

    >>> Transform()(np.zeros((300, 500, 3), np.uint8)).shape
    (224, 224, 3)
    """

    resize: int | None = 256
    crop: int = 224
    interpolation: Interpolation = "bilinear"

    def __post_init__(self) -> None:
        if self.crop < 1:
            raise ValueError(f"crop must be a number of pixels, got {self.crop}")
        if self.resize is not None and self.resize < self.crop:
            raise ValueError(f"a crop of {self.crop} does not fit into a side of {self.resize}")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise ValueError(
                f"interpolation must be 'bilinear' or 'bicubic', got {self.interpolation!r}"
            )

    def __call__(self, image: Image | NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A picture (height, width, 3), or Pillow's of any mode, as (crop, crop, 3)."""
        pixels = image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB"))
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise ValueError(
                f"a picture is uint8 (height, width, 3), got {pixels.dtype} {pixels.shape}"
            )
        return self._center(pixels if self.resize is None else self._resized(pixels, self.resize))

    def _resized(self, pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
        height, width = pixels.shape[:2]
        shorter = min(height, width)
        size = side * height // shorter, side * width // shorter
        if size == (height, width):
            return pixels
        # Bytes are rounded after the rows are resized and again after the columns, so where a
        # bicubic kernel overshoots 0 or 255 the order matters by up to 30 levels. Pillow 13 begins
        # with the columns of a tall picture that is made smaller, torch with the rows always.
        if side < shorter and height > 2 * width:
            return self._interpolated(pixels.transpose(1, 0, 2), size[::-1]).transpose(1, 0, 2)
        return self._interpolated(pixels, size)

    def _interpolated(self, pixels: NDArray[np.uint8], size: tuple[int, ...]) -> NDArray[np.uint8]:
        # Pillow's arrays are read-only, which torch warns of, and a view of the picture as
        # (1, 3, height, width) is channels-last, which torch has its fastest kernel for.
        planes = torch.from_numpy(pixels.copy(order="C")).permute(2, 0, 1)[None]
        resized = F.interpolate(planes, size=list(size), mode=self.interpolation, antialias=True)
        return resized[0].permute(1, 2, 0).numpy()

    def _center(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = pixels.shape[:2]
        if min(height, width) < self.crop:
            raise ValueError(
                f"a picture of {height} x {width} pixels is smaller than the crop of {self.crop}: "
                "give it a resize"
            )
        # round() to even, as torchvision does.
        top, left = (round((side - self.crop) / 2) for side in (height, width))
        return pixels[top : top + self.crop, left : left + self.crop].copy()
