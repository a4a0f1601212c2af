"""CIFAR-100 (Krizhevsky, 2009), read from a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dab.data.datasets.cifar_batches import Split, check_counts, check_split, read_batch
from dab.data.images import ArrayImages

__all__ = ["CIFAR100", "CLASSES"]

CLASSES = 100
PER_CLASS: Mapping[Split, int] = {"train": 500, "test": 100}
PICKLES = "cifar-100-python"


class CIFAR100(ArrayImages):
    """One split of CIFAR-100 with its 100 fine classes, in memory.

    Args:
        folder: the original `cifar-100-python`, or a folder that contains it.
        split: "train" (50,000 images) or "test" (10,000).
    """

    def __init__(self, folder: str | Path, split: Split) -> None:
        check_split(split)
        candidates = [Path(folder, PICKLES, split), Path(folder, split)]
        file = next(filter(Path.is_file, candidates), None)
        if file is None:
            raise ValueError(f"no CIFAR-100 in {folder}: unpack {PICKLES} there")
        data = check_counts(str(file), read_batch(file, b"fine_labels"), CLASSES, PER_CLASS[split])
        super().__init__("cifar100", *data)
