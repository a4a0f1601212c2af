"""Pickled batches, as CIFAR-10 and CIFAR-100 are distributed, read without running code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["Labeled", "Split", "check_counts", "check_split", "read_batch"]

Split = Literal["train", "test"]

# What reading a damaged pickle may raise.
_UNREADABLE = (
    *(AttributeError, EOFError, LookupError, OSError, TypeError, ValueError),
    pickle.UnpicklingError,
)


class Labeled(NamedTuple):
    """Images (n, 32, 32, 3) and their classes (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


def read_batch(file: Path, labels: bytes) -> Labeled:
    """Reads a batch: a row of its data is an image, one color plane after the other.

    Args:
        file: the pickle.
        labels: the key of the labels in it.
    """
    try:
        with file.open("rb") as opened:
            batch = _ArrayUnpickler(opened, encoding="bytes").load()
        planes = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32)
        return Labeled(planes.transpose(0, 2, 3, 1), np.array(batch[labels], np.int64))
    except _UNREADABLE as error:
        raise ValueError(f"{file} is not a batch of CIFAR: {error}") from error


class _ArrayUnpickler(pickle.Unpickler):
    """Loads numbers, bytes, lists, dicts and NumPy arrays, and refuses all other names."""

    # NumPy has moved this function between modules, but every pickled array names it.
    _RECONSTRUCT = np.empty(0).__reduce__()[0]
    _ALLOWED: Mapping[tuple[str, str], Any] = {
        ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it refers to {module}.{name}, which image data does not need"
            ) from None


def check_split(split: str) -> None:
    """Raises a ValueError unless this is the name of a split."""
    if split not in get_args(Split):
        raise ValueError(f"split must be one of {get_args(Split)}, got {split!r}")


def check_counts(what: str, data: Labeled, classes: int, per_class: int) -> Labeled:
    """Raises a ValueError unless there are `per_class` 32 x 32 images of each class."""
    images, labels = data
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3) or len(images) != len(labels):
        raise ValueError(
            f"{what} must be 32 x 32 x 3 bytes with one label per image, got {images.shape} "
            f"{images.dtype} with {len(labels)} labels"
        )
    check_labels(what, labels, classes, per_class)
    return data


def check_labels(what: str, labels: NDArray[Any], classes: int, per_class: int) -> None:
    """Raises a ValueError unless each class has `per_class` labels."""
    found = np.unique(labels, return_counts=True)
    counts = dict(zip(*(part.tolist() for part in found), strict=True))
    wrong = {
        label: counts.get(label, 0)
        for label in sorted({*range(classes), *counts})
        if counts.get(label, 0) != (per_class if label in range(classes) else 0)
    }
    if wrong:
        some = ", ".join(f"{count} of class {label}" for label, count in list(wrong.items())[:5])
        raise ValueError(
            f"{what} must have {per_class} images of each of {classes} classes, but there are "
            f"{some}{', ...' if len(wrong) > 5 else ''}: the download may be incomplete"
        )
