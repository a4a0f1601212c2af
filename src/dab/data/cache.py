"""An on-disk cache for images that are slow to make."""

from __future__ import annotations

import io
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["Cache", "cache_folder"]

Shape = tuple[int, int, int, int]

IMAGES, CHECKSUMS = FILES = "images.npy", "checksums.npy"


def cache_folder() -> Path:
    """Returns the default folder: $DAB_CACHE, or `dab` in the user's cache folder."""
    if chosen := os.environ.get("DAB_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dab"


class Cache:
    """An array of images that any number of processes fill at the same time, in any order.

    Every image has a checksum, written after its pixels. An image counts as cached if its checksum
    matches, so whatever a killed process or a full disk leaves behind is remade.

    Args:
        folder: holds the two files; created when first written to.
        shape: of the whole array, (images, height, width, channels).
    """

    def __init__(self, folder: Path, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape
        self._images = _ArrayFile(folder / IMAGES, shape, np.uint8)
        self._checksums = _ArrayFile(folder / CHECKSUMS, shape[:1], np.uint32)

    def read(
        self, indices: NDArray[np.int64], make: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """Returns the images at these indices. Those that are not cached are made and cached."""
        indices = np.arange(self.shape[0])[indices]  # negative indices count from the end
        images = self._images.items(indices)
        known = self._checksums.all()[indices]
        missing = np.flatnonzero(known != _checksums(images))
        if len(missing):
            images[missing] = make(indices[missing])
            self._images.write(indices[missing], images[missing])
            self._checksums.write(indices[missing], _checksums(images[missing]))
        return images

    def complete(self, size: int | None = None) -> bool:
        """Whether the first `size` images (None: all) are cached."""
        exists = all((self.folder / name).exists() for name in FILES)
        return exists and bool(self._checksums.all()[:size].all())


def _checksums(images: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.array([zlib.crc32(image) for image in images], np.uint32)


class _ArrayFile:
    """A .npy file whose items are read and written in place.

    It is not memory-mapped: in a mapping, a file that is truncated or a full disk is a bus error,
    which ends the process. It is opened again for every call, so it may be removed at any time.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> None:
        self.path, self.shape, self.dtype = path, shape, np.dtype(dtype)
        self.header = _header(shape, self.dtype)
        self.item_size = self.dtype.itemsize * math.prod(shape[1:])

    def items(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Returns the items at these indices; zeros where the file ends early."""
        items = np.empty((len(indices), *self.shape[1:]), self.dtype)
        rows = items.view(np.uint8).reshape(len(indices), self.item_size)
        with self._opened() as file:
            for row, index in zip(rows, indices.tolist(), strict=True):
                row[os.preadv(file.fileno(), [row.data], self._offset(index)) :] = 0
        return items

    def all(self) -> NDArray[Any]:
        """Returns the whole array; zeros where the file ends early."""
        items = np.zeros(self.shape, self.dtype)
        with self._opened() as file:
            file.seek(self._offset(0))
            file.readinto(items.reshape(-1).view(np.uint8).data)
        return items

    def write(self, indices: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Replaces the items at these indices."""
        try:
            with self.path.open("rb+") as file:
                for index, value in zip(indices.tolist(), values, strict=True):
                    file.seek(self._offset(index))
                    file.write(value)
        except OSError as error:  # of a write: it does not name its file
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _offset(self, index: int) -> int:
        return len(self.header) + index * self.item_size

    def _opened(self) -> io.BufferedReader:
        size = self._offset(self.shape[0])
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        if self.path.stat().st_size < size:
            # The workers of a stream all come here at the same time, so the file is not replaced:
            # others may have it open. All write the same bytes to the same place.
            with self.path.open("rb+") as begun:
                begun.write(self.header)
                begun.truncate(size)
        file = self.path.open("rb")
        if file.read(len(self.header)) != self.header:
            file.close()
            raise ValueError(f"{self.path} is not an array of {self.shape} {self.dtype}: remove it")
        return file


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of a .npy file."""
    header = io.BytesIO()
    descr = npy.dtype_to_descr(dtype)
    npy.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue()
