"""Image files in folders, decoded on demand."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dab.data.decoding import ExactSize, read
from dab.data.images import Indices
from dab.data.transform import Transform
from dab.utils.fingerprint import fingerprint

__all__ = ["Entry", "Fitting", "FolderImages", "images_in", "subfolders"]

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


Fitting = Transform | ExactSize


class Entry(NamedTuple):
    """A file, by its path relative to a root."""

    path: str
    size: int  # in bytes


def subfolders(folder: Path) -> list[str]:
    """Returns the names of a folder's subfolders, sorted, without hidden ones."""
    with os.scandir(folder) as found:
        return sorted(one.name for one in found if one.is_dir() and not one.name.startswith("."))


def images_in(root: Path, folder: str) -> list[Entry]:
    """Returns the image files in a folder below a root, sorted by name."""
    with os.scandir(root / folder) as found:
        pictures = [
            Entry(f"{folder}/{one.name}", one.stat().st_size)
            for one in found
            if one.name.lower().endswith(SUFFIXES) and not one.name.startswith(".")
        ]
    return sorted(pictures)


class FolderImages:
    """Labeled image files below a root.

    Args:
        root: the folder that paths are relative to.
        entries: the files.
        labels: their classes.
        transform: brings all images to one size.
    """

    def __init__(
        self, root: Path, entries: Sequence[Entry], labels: Iterable[int], transform: Fitting
    ) -> None:
        self.root, self.transform = root, transform
        # Bytes in one array, so a million paths can be sent to a worker as a few megabytes.
        self.paths: NDArray[np.bytes_] = np.array([os.fsencode(entry.path) for entry in entries])
        self.sizes: NDArray[np.int64] = np.array([entry.size for entry in entries], np.int64)
        self.labels: NDArray[np.int64] = np.array(list(labels), np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def spread(self, size: int) -> FolderImages:
        """Returns `size` of the images, evenly spaced in the list, which is sorted by class."""
        if not 1 <= size <= len(self):
            raise ValueError(f"cannot take {size} of {len(self)} images")
        chosen = np.arange(size) * len(self) // size
        part = copy(self)
        part.paths, part.sizes = self.paths[chosen], self.sizes[chosen]
        part.labels = self.labels[chosen]
        part.__dict__.pop("fingerprint", None)  # cached for all images
        return part

    def file(self, index: int) -> Path:
        """Returns the file of an image."""
        return self.root / os.fsdecode(self.paths[index])

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, decoded and stacked."""
        return np.stack([read(self.file(index), self.transform) for index in indices])

    def ready(self, size: int | None = None) -> bool:
        """Always False: decoding is slow enough for worker processes."""
        return False

    @cached_property
    def fingerprint(self) -> str:
        """A hash of paths, file sizes, labels and transform: hashing all pixels takes too long."""
        return fingerprint("folder", self.paths, self.sizes, self.labels, str(self.transform))
