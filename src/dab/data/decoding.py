"""Fast decoding of image files: libjpeg-turbo decodes JPEGs directly into an array.

Pillow uses the same library and returns the same bytes, but copies the pixels twice. Orientation
tags are ignored, as in torchvision's ImageFolder.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import Image

__all__ = ["ExactSize", "Pixels", "decode", "read"]

Pixels = NDArray[np.uint8]  # (height, width, 3)

DIRECT = ("YCbCr", "RGB", "Gray")  # libjpeg cannot convert other color spaces to RGB


@dataclass(frozen=True)
class ExactSize:
    """Returns images unchanged, and raises a ValueError unless they are squares of this size."""

    side: int

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if (height, width) != (self.side, self.side):
            raise ValueError(f"expected {self.side} x {self.side} pixels, got {height} x {width}")
        return pixels


def read(file: str | Path, transform: Callable[[Pixels], Pixels]) -> Pixels:
    """Decodes and transforms a file. A ValueError names the file if it cannot be decoded."""
    try:
        return transform(decode(Path(file).read_bytes()))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def decode(content: bytes) -> Pixels:
    """Decodes the content of an image file."""
    try:
        if simplejpeg.decode_jpeg_header(content)[2] in DIRECT:
            pixels: Pixels = simplejpeg.decode_jpeg(content, fastdct=False, fastupsample=False)
            return pixels
    except ValueError:  # not a JPEG, or a damaged one that Pillow may accept
        pass
    return _decode_by_pillow(content)


def _decode_by_pillow(content: bytes) -> Pixels:
    if not content:
        raise ValueError("the file is empty")
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    # Pillow raises almost any exception on damaged files, depending on the format.
    except Exception as error:
        raise ValueError(f"not a readable image ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """Returns the message without the memory address that Pillow appends."""
    return str(error).partition(" <")[0] or type(error).__name__
