"""Images that take long to make, kept on disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dab import files

__all__ = ["Cache", "cache_folder"]

Shape = tuple[int, int, int, int]


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
        images: NDArray[np.uint8] = self._images[indices]
        known = self._checksums[indices]
        missing = np.flatnonzero(known != _checksums(images))
        if len(missing):
            images[missing] = make(indices[missing])
            self._images[indices[missing]] = images[missing]
            self._checksums[indices[missing]] = _checksums(images[missing])
        return images

    @property
    def complete(self) -> bool:
        """Whether every image has been made."""
        return (self.folder / "checksums.npy").exists() and bool(self._checksums.all())

    # Opened where they are used: a worker process maps the files itself instead of getting a copy.

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "shape": self.shape}

    @cached_property
    def _images(self) -> NDArray[np.uint8]:
        return _mapped(self.folder / "images.npy", self.shape, np.uint8)

    @cached_property
    def _checksums(self) -> NDArray[np.uint32]:
        return _mapped(self.folder / "checksums.npy", self.shape[:1], np.uint32)


def _checksums(images: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.array([zlib.crc32(image) for image in images], np.uint32)


def _mapped(file: Path, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    if not file.exists():
        # Of two processes that come here at once, the later one's file stays, and the other's
        # images are made again.
        with files.aside(file) as unfinished:
            np.lib.format.open_memmap(unfinished, mode="w+", dtype=dtype, shape=shape)
    try:
        found: NDArray[Any] = np.load(file, mmap_mode="r+", allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{file} is damaged ({error}): remove it") from error
    if found.shape != shape or found.dtype != dtype:
        raise ValueError(f"{file} holds {found.dtype} {found.shape} instead of {shape}: remove it")
    return found
