"""Makes ImageNet-C from clean images: `<corruption>/<severity>/<wnid>/<name>.JPEG`."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
from PIL import Image

from dab.data.corruptions import corrupt
from dab.data.datasets.folder import images_in, subfolders
from dab.data.datasets.imagenet_classes import INDEX
from dab.data.decoding import Pixels, read
from dab.data.errors import DataError, Problems
from dab.data.transform import Transform
from dab.utils import files

__all__ = ["Maker", "Work", "at_published_size"]

SIZE = 224
QUALITY = 85  # of the published files
SHRINK = Transform(resize=256, crop=SIZE)


class Work(NamedTuple):
    """A clean image, and the corruptions and severities that are missing."""

    path: str
    variants: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Maker:
    """Makes the tree one clean image at a time, in any order and in any number of processes.

    The randomness of a file depends on its name, corruption and severity alone. Files are written
    atomically, so existing ones are complete and are skipped.

    Args:
        source: a folder of clean images `<wnid>/<name>`, of any size. Images of 224 x 224 pixels
            are not resized.
        target: the folder of the tree.
    """

    source: Path
    target: Path

    def plan(self, corruptions: Sequence[str], severities: Sequence[int]) -> list[Work]:
        """Returns the work that is left to do."""
        if self.source.resolve() in [self.target.resolve(), *self.target.resolve().parents]:
            raise ValueError(f"{self.target} is inside {self.source}: choose another folder")
        probe = np.zeros((SIZE, SIZE, 3), np.uint8)
        variants = list(product(dict.fromkeys(corruptions), dict.fromkeys(severities)))
        for name, level in variants:  # raises if unknown
            corrupt(probe, name, level, np.random.default_rng(0))
        plan = []
        for wnid, pictures in _pictures(self.source).items():
            there = {(name, level): self._there(name, level, wnid) for name, level in variants}
            for made, path in pictures.items():
                missing = tuple(variant for variant in variants if made not in there[variant])
                if missing:
                    plan.append(Work(path, missing))
        return plan

    def _folder(self, corruption: str, severity: int, wnid: str) -> Path:
        return self.target / corruption / str(severity) / wnid

    def _there(self, corruption: str, severity: int, wnid: str) -> set[str]:
        folder = self._folder(corruption, severity, wnid)
        if not folder.exists():
            return set()
        files.remove_unfinished(folder)
        return set(os.listdir(folder))

    def __call__(self, work: Work) -> str | None:
        """Makes the files of one image. Returns an error message if it cannot be read."""
        try:
            clean = read(self.source / work.path, at_published_size)
        except (OSError, ValueError) as error:
            return str(error)
        for corruption, severity in work.variants:
            image = corrupt(clean, corruption, severity, _rng(work.path, corruption, severity))
            folder = self._folder(corruption, severity, PurePath(work.path).parent.name)
            files.write(folder / _made_name(work.path), _jpeg(image))
        return None


def _pictures(source: Path) -> dict[str, dict[str, str]]:
    """Returns, for every class, the paths of its images by the name of the file to make."""
    problems = Problems()
    found: dict[str, dict[str, str]] = {}
    for folder in subfolders(source):
        paths = [entry.path for entry in images_in(source, folder)]
        found[folder] = {_made_name(path): path for path in paths}
        twins = set(paths) - set(found[folder].values())
        problems.add("images whose names differ from another's in the suffix alone", sorted(twins))
    foreign = [folder for folder in found if folder not in INDEX]
    problems.add("folders that are not classes of ImageNet", foreign)
    problems.report(f"{source} cannot be corrupted")
    if not any(found.values()):
        raise DataError(f"{source} has no images <wnid>/<name>.JPEG")
    return found


def at_published_size(image: Pixels) -> Pixels:
    """Resizes to 256 and crops to 224 pixels. Images of 224 x 224 are returned as they are."""
    return image if image.shape[:2] == (SIZE, SIZE) else SHRINK(image)


def _made_name(path: str) -> str:
    return f"{PurePath(path).stem}.JPEG"


def _rng(path: str, corruption: str, severity: int) -> np.random.Generator:
    name = f"{PurePath(path).parent.name}/{_made_name(path)} {corruption} {severity}"
    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest(), "big"))


def _jpeg(image: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=QUALITY, optimize=True)
    return file.getvalue()
