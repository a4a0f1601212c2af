"""Images that take long to make, kept on disk."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["Cache", "cache_folder"]

Shape = tuple[int, int, int, int]
Mapped = np.memmap[Any, np.dtype[Any]]

IMAGES, CHECKSUMS = FILES = "images.npy", "checksums.npy"


def cache_folder() -> Path:
    """Where images are kept unless told otherwise: $DAB_CACHE, or `dab` in the user's cache."""
    if chosen := os.environ.get("DAB_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dab"


class Cache:
    """An array of images that is filled in any order, by any number of processes at once.

    Beside the pixels stands a checksum for each image, written after them. An image counts as
    there when its checksum fits, so that whatever a killed process or a full disk leaves behind is
    made again instead of believed.

    Args:
        folder: holds the two files; made when first written to.
        shape: of the whole array, (images, height, width, channels).
    """

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape

    def read(
        self, indices: NDArray[np.int64], make: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """The images at these indices; those that are not there are made and kept."""
        indices = np.arange(self.shape[0])[indices]  # those from the end, by their real number
        images: NDArray[np.uint8] = self._images[indices]
        known = self._checksums[indices]
        missing = np.flatnonzero(known != _checksums(images))
        if len(missing):
            images[missing] = make(indices[missing])
            _write(self._images, indices[missing], images[missing])
            _write(self._checksums, indices[missing], _checksums(images[missing]))
        return images

    def complete(self, size: int | None = None) -> bool:
        """Whether the first images, this many (None: all), have been made."""
        there = all((self.folder / name).exists() for name in FILES)
        return there and bool(self._checksums[:size].all())

    # Opened where they are used: a worker process maps the files itself instead of getting a copy.

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "shape": self.shape}

    @cached_property
    def _images(self) -> Mapped:
        return _mapped(self.folder / IMAGES, self.shape, np.uint8)

    @cached_property
    def _checksums(self) -> Mapped:
        return _mapped(self.folder / CHECKSUMS, self.shape[:1], np.uint32)


def _checksums(images: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.array([zlib.crc32(image) for image in images], np.uint32)


def _write(array: Mapped, indices: NDArray[np.int64], values: NDArray[Any]) -> None:
    """Change items of an array in its file: in memory, a full disk would end the process."""
    with Path(str(array.filename)).open("rb+") as file:
        for index, value in zip(indices.tolist(), values, strict=True):
            file.seek(array.offset + index * value.nbytes)
            file.write(value)


def _mapped(file: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> Mapped:
    header = _header(shape, dtype)
    size = len(header) + np.dtype(dtype).itemsize * math.prod(shape)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    if file.stat().st_size < size:
        # The workers of a stream all come here at once, so the file is not replaced: that would
        # take it away from those who have mapped it. All write the same to the same place.
        with file.open("rb+") as begun:
            begun.write(header)
            begun.truncate(size)
    with file.open("rb") as found:
        if found.read(len(header)) != header:
            raise ValueError(f"{file} is no array of {shape} {dtype.__name__}: remove it")
    return np.memmap(file, dtype, "r", len(header), shape)


def _header(shape: tuple[int, ...], dtype: type[np.generic]) -> bytes:
    """How the file of an array begins that numpy can load."""
    header = io.BytesIO()
    descr = npy.dtype_to_descr(np.dtype(dtype))
    npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()
