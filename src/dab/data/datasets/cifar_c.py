"""CIFAR-10-C and CIFAR-100-C (Hendrycks and Dietterich, 2019), read from their published files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dab.data.datasets.cifar_batches import check_labels
from dab.data.images import Indices
from dab.utils.fingerprint import fingerprint

__all__ = ["CIFARC", "Name"]

Name = Literal["cifar10-c", "cifar100-c"]

SEVERITIES = 5
IMAGES = 10_000  # per severity


class Published(NamedTuple):
    """What the archive of a data set unpacks to."""

    folder: str
    classes: int


PUBLISHED: Mapping[Name, Published] = {
    "cifar10-c": Published("CIFAR-10-C", 10),
    "cifar100-c": Published("CIFAR-100-C", 100),
}


class CIFARC:
    """The 10,000 test images of CIFAR under one corruption, read from disk batch by batch.

    A file `<corruption>.npy` has the test images at severity 1, then at severity 2, up to 5.
    `labels.npy` has the labels in the same order.

    Args:
        name: of the data set.
        root: the folder of these files, or one that contains it as `CIFAR-10-C` or `CIFAR-100-C`.
        corruption: one of the files.
        severity: 1 to 5.
    """

    def __init__(self, name: Name, root: str | Path, corruption: str, severity: int) -> None:
        if severity not in range(1, SEVERITIES + 1):
            raise ValueError(f"severity must be 1 to {SEVERITIES}, got {severity}")
        folder, classes = PUBLISHED[name]
        root = Path(root, folder) if Path(root, folder).is_dir() else Path(root)
        self.name, self.corruption, self.severity = name, corruption, severity
        self.file = root / f"{corruption}.npy"
        self._start = (severity - 1) * IMAGES
        if not self.file.exists():
            known = sorted(file.stem for file in root.glob("*.npy") if file.stem != "labels")
            raise ValueError(
                f"{name} in {root} has no {self.file.name}; available: {', '.join(known) or 'none'}"
            )
        _mapped(self.file, np.uint8, (32, 32, 3))
        labels = _rows(
            _mapped(root / "labels.npy", np.integer, ()), range(self._start, self._start + IMAGES)
        )
        self.labels: NDArray[np.int64] = labels.astype(np.int64)
        check_labels(str(root / "labels.npy"), self.labels, classes, IMAGES // classes)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, stacked."""
        rows = self._start + np.arange(len(self))[np.asarray(indices, np.int64)]
        return _rows(_mapped(self.file, np.uint8, (32, 32, 3)), rows.tolist())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all images and labels."""
        return fingerprint(self.name, self.batch(range(len(self))), self.labels)


def _mapped(file: Path, dtype: Any, item: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Maps a file of all severities, and checks that it is complete. `_rows` reads it."""
    try:
        array: np.memmap[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise ValueError(f"{file} is missing: unpack the archive again") from error
    except (EOFError, OSError, ValueError) as error:
        raise ValueError(f"{file} is damaged or incomplete: {error}") from error
    expected = (SEVERITIES * IMAGES, *item)
    is_expected = np.issubdtype(array.dtype, dtype) and array.shape == expected
    if not (is_expected and array.flags.c_contiguous):
        raise ValueError(
            f"{file} must have {dtype.__name__} {expected} in C order: {SEVERITIES} severities of "
            f"{IMAGES:,} images; got {array.dtype} {array.shape}"
        )
    return array


def _rows(mapped: np.memmap[Any, Any], rows: Sequence[int]) -> NDArray[Any]:
    """Reads rows of a mapped file, not through the map: truncating it would kill the process."""
    size, found = mapped.nbytes // len(mapped), bytearray()
    with open(str(mapped.filename), "rb") as file:
        for row in rows:
            found += os.pread(file.fileno(), size, mapped.offset + row * size)
    if len(found) != size * len(rows):
        raise ValueError(f"{mapped.filename} was truncated: unpack the archive again")
    return np.frombuffer(found, mapped.dtype).reshape(len(rows), *mapped.shape[1:])
