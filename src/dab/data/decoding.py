"""Picture files as pixels, fast: JPEGs by libjpeg-turbo straight into an array.

Pillow decodes with the same library but copies the pixels twice on the way; both give the same
bytes. Orientation tags are ignored, as torchvision's ImageFolder does.
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

DIRECT = ("YCbCr", "RGB", "Gray")  # the others need more than libjpeg to become RGB


@dataclass(frozen=True)
class ExactSize:
    """Takes pictures as they are, and no others than squares of a size."""

    side: int

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if (height, width) != (self.side, self.side):
            raise ValueError(f"{height} x {width} pixels, not {self.side} x {self.side}")
        return pixels


def read(file: str | Path, transform: Callable[[Pixels], Pixels]) -> Pixels:
    """The pixels of a file after a transform; a ValueError names the file that has none."""
    try:
        return transform(decode(Path(file).read_bytes()))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def decode(content: bytes) -> Pixels:
    """The pixels in the content of a file."""
    try:
        if simplejpeg.decode_jpeg_header(content)[2] in DIRECT:
            pixels: Pixels = simplejpeg.decode_jpeg(content, fastdct=False, fastupsample=False)
            return pixels
    except ValueError:  # no JPEG, or one with flaws that Pillow may overlook
        pass
    return _decode_by_pillow(content)


def _decode_by_pillow(content: bytes) -> Pixels:
    if not content:
        raise ValueError("the file is empty")
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    # Damaged files of its many formats make Pillow raise nearly anything.
    except Exception as error:
        raise ValueError(f"no readable picture ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """What is wrong, without Pillow's address of the bytes in memory."""
    return str(error).partition(" <")[0] or type(error).__name__
