"""The interface of a data set, and small implementations of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dab.utils.fingerprint import fingerprint

__all__ = ["ArrayImages", "Images", "Indices", "Subset", "is_ready", "to_tensor"]

Indices = Sequence[int] | NDArray[np.integer[Any]]


class Images(Protocol):
    """Labeled images of one size, read by index."""

    labels: NDArray[np.int64]

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices as (n, height, width, 3)."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the list of images, their pixels or their labels."""
        ...


class ArrayImages:
    """Images in memory.

    Args:
        name: of the data set.
        images: (n, height, width, 3).
        labels: (n,).
    """

    def __init__(
        self, name: str, images: NDArray[np.uint8], labels: NDArray[np.integer[Any]]
    ) -> None:
        self.name, self.images = name, images
        self.labels: NDArray[np.int64] = labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self.images[index], int(self.labels[index])

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, stacked."""
        return self.images[np.asarray(indices, np.int64)]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all images and labels."""
        return fingerprint(self.name, self.images, self.labels)


class Subset:
    """The first images of a data set."""

    def __init__(self, images: Images, size: int) -> None:
        if not 1 <= size <= len(images):
            raise ValueError(f"cannot take {size} of {len(images)} images")
        self.images = images
        self.labels: NDArray[np.int64] = images.labels[:size]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, stacked."""
        return self.images.batch(indices)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.images.fingerprint, str(len(self)))

    def ready(self, size: int | None = None) -> bool:
        """Whether the first `size` images (None: all) can be read without computation."""
        return is_ready(self.images, len(self) if size is None else size)


def is_ready(images: Images, size: int | None = None) -> bool:
    """Whether the first `size` images (None: all) can be read without computation.

    Data sets that are slow to read say so with a method `ready`.
    """
    ready: bool = images.ready(size) if hasattr(images, "ready") else True
    return ready


def to_tensor(images: NDArray[np.uint8] | Tensor) -> Tensor:
    """Converts bytes (n, height, width, 3) to contiguous floats (n, 3, height, width) in [0, 1]."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).contiguous().float().div_(255)
