"""What a stream, a training and a cache ask of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dab.utils.fingerprint import fingerprint

__all__ = ["Images", "Indices", "Subset", "is_ready", "to_tensor"]

Indices = Sequence[int] | NDArray[np.integer[Any]]


class Images(Protocol):
    """Labelled images of one size, read by index."""

    labels: NDArray[np.int64]

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """The images at these indices as (n, height, width, 3)."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash that changes with the list of images, their pixels or their labels."""
        ...


class Subset:
    """The first images of a data set."""

    def __init__(self, images: Images, size: int) -> None:
        if not 1 <= size <= len(images):
            raise ValueError(f"there are {len(images)} images, {size} were asked for")
        self.images = images
        self.labels: NDArray[np.int64] = images.labels[:size]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """The images at these indices, stacked."""
        return self.images.batch(indices)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.images.fingerprint, str(len(self)))

    def ready(self, size: int | None = None) -> bool:
        """Whether the first images (None: all) only need to be read."""
        return is_ready(self.images, len(self) if size is None else size)


def is_ready(images: Images, size: int | None = None) -> bool:
    """Whether the first images (None: all) only need to be read; so unless they say otherwise."""
    ready: bool = images.ready(size) if hasattr(images, "ready") else True
    return ready


def to_tensor(images: NDArray[np.uint8] | Tensor) -> Tensor:
    """Bytes (n, height, width, 3) as contiguous floats (n, 3, height, width) in [0, 1]."""
    return torch.as_tensor(images).permute(0, 3, 1, 2).contiguous().float().div_(255)
