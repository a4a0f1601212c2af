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

__all__ = ["ArrayImages", "Images", "Indices", "Subset", "is_ready", "to_tensor", "tracks_of"]

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
        tracks: (n,) of videos, the number of the video that each image belongs to.
    """

    def __init__(
        self,
        name: str,
        images: NDArray[np.uint8],
        labels: NDArray[np.integer[Any]],
        tracks: NDArray[np.int64] | None = None,
    ) -> None:
        self.name, self.images, self.tracks = name, images, tracks
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
        """A hash of all images, labels and tracks."""
        tracks = () if self.tracks is None else (self.tracks,)
        return fingerprint(self.name, self.images, self.labels, *tracks)


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

    @property
    def tracks(self) -> NDArray[np.int64] | None:
        tracks = tracks_of(self.images)
        return None if tracks is None else tracks[: len(self)]


def is_ready(images: Images, size: int | None = None) -> bool:
    """Whether the first `size` images (None: all) can be read without computation.

    Data sets that are slow to read say so with a method `ready`.
    """
    ready: bool = images.ready(size) if hasattr(images, "ready") else True
    return ready


def tracks_of(images: Images) -> NDArray[np.int64] | None:
    """Returns the number of the video that each image belongs to, or None.

    Data sets that are videos have these numbers as an attribute `tracks`. The images of a track are
    in the order of time.
    """
    tracks: NDArray[np.int64] | None = getattr(images, "tracks", None)
    return tracks


def to_tensor(images: NDArray[np.uint8] | Tensor) -> Tensor:
    """Converts bytes (n, height, width, 3) to contiguous floats (n, 3, height, width) in [0, 1]."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).contiguous().float().div_(255)
