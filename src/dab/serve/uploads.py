"""Uploaded image files, which may have been made to do harm."""

from __future__ import annotations

import io

import torch
from PIL import Image
from torch import Tensor

from dab.data.decoding import decode
from dab.data.transform import Transform
from dab.serve.errors import TooLargeError

__all__ = ["FORMATS", "decode_upload"]

FORMATS = {"image/jpeg": "JPEG", "image/png": "PNG"}
START_OF_SCAN = b"\xff\xda"
SCANS = 100  # of a progressive JPEG; each costs a pass over all pixels, and common files have ten


def decode_upload(content: bytes, transform: Transform, *, pixels: int) -> Tensor:
    """A JPEG or PNG as the model expects it: uint8 (1, 3, height, width).

    What is too large is refused by what the header declares, before anything is decoded: a file of
    a few kilobytes can declare gigabytes of pixels, or a line that becomes as many when resized.
    """
    width, height = _declared(content)
    shorter, longer = sorted((width, height))
    resized = 0 if transform.resize is None else transform.resize**2 * longer // shorter
    if max(width * height, resized) > pixels:
        raise TooLargeError(
            f"an image of {width:,} x {height:,} pixels is too large, or too long and narrow to be "
            f"resized: the limit is {pixels:,} pixels"
        )
    if content.count(START_OF_SCAN) > SCANS:
        raise TooLargeError(f"a progressive JPEG may have {SCANS} scans")
    return torch.from_numpy(transform(decode(content))).permute(2, 0, 1)[None]


def _declared(content: bytes) -> tuple[int, int]:
    try:
        with Image.open(io.BytesIO(content), formats=tuple(FORMATS.values())) as image:
            return image.size
    except Image.DecompressionBombError as error:
        raise TooLargeError(str(error)) from error
    except Exception as error:  # Pillow raises almost any exception on damaged files
        raise ValueError("not a readable JPEG or PNG image") from error
