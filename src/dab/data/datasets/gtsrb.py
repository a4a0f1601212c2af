"""GTSRB (Stallkamp et al., 2012): traffic signs in tracks of video frames."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from copy import copy
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dab.data.datasets.folder import FolderImages, images_in, subfolders
from dab.data.errors import DataError, Problems
from dab.data.images import ArrayImages, Images, Indices
from dab.data.transform import Transform
from dab.utils.fingerprint import fingerprint

__all__ = ["CLASSES", "GTSRB", "IMAGES", "Half"]

Half = Literal["train", "test"]

CLASSES = 43
IMAGES = 39_209  # of the published training set
PER_CLASS = 100_000  # tracks, whose numbers have five digits
FOLDER = re.compile(r"\d{5}")
FILE = re.compile(r"(\d{5})_(\d{5})\.ppm")


class GTSRB:
    """Images of traffic signs, in the order of class, track and frame.

    A track is a video of one sign while a car drives toward it.

    Args:
        path: the folder of the official layout `CLASS/TRACK_FRAME.ppm`, with five digits each, or
            an .npz file with the arrays `images` (uint8), `labels`, `tracks` and `frames`.
        transform: brings the images of a folder to one size. An .npz file already has one size.
    """

    labels: NDArray[np.int64]
    tracks: NDArray[np.int64]  # (n,), the digits of class and track
    frames: NDArray[np.int64]  # (n,), numbered per track

    def __init__(self, path: str | Path, transform: Transform | None = None) -> None:
        path = Path(path)
        read = _read_folder if path.is_dir() else _read_npz
        self.images, numbers, self.frames = read(path, transform or Transform(32, 32))
        self.labels = self.images.labels
        self.tracks = self.labels * PER_CLASS + numbers
        self._chosen = np.arange(len(self.labels))
        order = np.stack([self.tracks, self.frames], axis=1).tolist()
        if order != sorted(order):
            raise DataError(f"{path} must be sorted by class, track and frame")
        ((track, frame), count), *_ = Counter(map(tuple, order)).most_common(1)
        if count > 1:
            twice = (*divmod(track, PER_CLASS), frame)
            raise DataError(f"{path} has {count} images of class, track and frame {twice}")

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the images at these indices, stacked."""
        return self.images.batch(self._chosen[np.asarray(indices, np.int64)])

    def half(self, name: Half) -> GTSRB:
        """Returns one half: "train" is the first, third, ... track, "test" the others.

        Frames of a track are alike, so no track is in both halves.
        """
        if name not in get_args(Half):
            raise ValueError(f"a half must be one of {get_args(Half)}, got {name!r}")
        which = np.unique(self.tracks, return_inverse=True)[1]
        return self._part(which % 2 == get_args(Half).index(name))

    def spread(self, size: int) -> GTSRB:
        """Returns up to `size` images: whole tracks, evenly spaced in the list of tracks."""
        if size > len(self):
            raise ValueError(f"cannot take {size} of {len(self)} images")
        distinct, which = np.unique(self.tracks, return_inverse=True)
        for count in range(len(distinct), 0, -1):
            chosen = np.isin(which, np.arange(count) * len(distinct) // count)
            if chosen.sum() <= size:
                return self._part(chosen)
        raise ValueError(f"{size} images are less than a track")

    def _part(self, chosen: NDArray[np.bool_]) -> GTSRB:
        if not chosen.any():
            raise DataError("GTSRB has too few tracks to take a part of them")
        part = copy(self)
        part._chosen, part.labels = self._chosen[chosen], self.labels[chosen]
        part.tracks, part.frames = self.tracks[chosen], self.frames[chosen]
        return part

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.images.fingerprint, self.tracks, self.frames)


Read = tuple[Images, NDArray[np.int64], NDArray[np.int64]]


def _read_folder(root: Path, transform: Transform) -> Read:
    entries, labels, numbers = [], [], []
    problems = Problems()
    for folder in subfolders(root):
        if not FOLDER.fullmatch(folder) or int(folder) >= CLASSES:
            problems.add(f"folders that are not 00000 to {CLASSES - 1:05}", [folder])
            continue
        for entry in images_in(root, folder):
            name = FILE.fullmatch(Path(entry.path).name)
            if name is None:
                problems.add("files that are not TRACK_FRAME.ppm", [entry.path])
            elif not entry.size:
                problems.add("empty files", [entry.path])
            else:
                entries.append(entry)
                labels.append(int(folder))
                numbers.append((int(name[1]), int(name[2])))
    problems.report(f"{root} is not GTSRB")
    if not entries:
        raise DataError(f"{root} has no images CLASS/TRACK_FRAME.ppm")
    tracks, frames = np.array(numbers, np.int64).T
    return FolderImages(root, entries, labels, transform), tracks, frames


def _read_npz(file: Path, transform: Transform) -> Read:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            images, *numbers = (arrays[key] for key in ("images", "labels", "tracks", "frames"))
    except FileNotFoundError:
        raise DataError(f"no such file or folder: {file}") from None
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is not GTSRB, or damaged: {error}") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise DataError(
            f"the images in {file} must be uint8 (n, height, width, 3), got {images.dtype} "
            f"{images.shape}"
        )
    if any(each.shape != images.shape[:1] or each.dtype.kind not in "iu" for each in numbers):
        raise DataError(f"{file} must have one integer label, track and frame per image")
    labels, tracks, frames = (each.astype(np.int64) for each in numbers)
    if tracks.min(initial=0) < 0 or tracks.max(initial=0) >= PER_CLASS:
        raise DataError(f"the tracks in {file} must be numbered from 0, with five digits")
    if not len(labels) or labels.min() < 0 or labels.max() >= CLASSES:
        raise DataError(f"the labels in {file} must be 0 to {CLASSES - 1}")
    return ArrayImages("gtsrb", images, labels), tracks, frames
