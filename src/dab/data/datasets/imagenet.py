"""The shifted test sets of ImageNet, read from disk and checked before use."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.datasets.folder import Entry, Fitting, FolderImages, images_in, subfolders
from dab.data.datasets.imagenet_classes import D109, INDEX
from dab.data.decoding import ExactSize
from dab.data.errors import DataError, Problems
from dab.data.transform import Transform
from dab.utils.suggest import unknown

__all__ = ["DATA_SETS", "DataSet", "image_list", "load"]

C_SIZE = 224  # of all images in ImageNet-C
C_PER_CLASS = 50
C_LISTED = 5000
R_CLASSES, R_IMAGES = 200, 30_000
SKETCH_IMAGES = 50_889
D109_IMAGES = {
    "clipart": 16_049,
    "infograph": 15_700,
    "painting": 23_926,
    "real": 58_526,
    "sketch": 22_298,
}


@dataclass(frozen=True)
class DataSet:
    """A data set on disk.

    Args:
        name: in tables.
        domains: the parts of each domain, in the order of the benchmark. A domain has one part, or
            one per requested severity.
        classes: the indices of the ImageNet logits to keep, in the order of the labels; None keeps
            all.
        complete: whether it has all published images, so that numbers are comparable.
    """

    name: str
    domains: Mapping[str, Sequence[FolderImages]]
    classes: tuple[int, ...] | None
    complete: bool


def load(name: str, root: str | Path, transform: Transform, **options: Any) -> DataSet:
    """Loads a data set by name.

    All problems with its folders are reported in one `DataError`, a ValueError.

    Args:
        name: one of `DATA_SETS`.
        root: its folder, or a folder that contains it under its usual name.
        transform: brings all images to one size.
        options: `partial=True` accepts an incomplete data set, but no classes that ImageNet does
            not have. For imagenet-c see also `imagenet_c`.
    """
    if name not in DATA_SETS:
        raise ValueError(unknown("data set", name, DATA_SETS))
    return DATA_SETS[name](Path(root), transform, **options)


def imagenet_c(
    root: Path,
    transform: Transform,
    *,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (5,),
    images: Sequence[str] | None = None,
    partial: bool = False,
) -> DataSet:
    """ImageNet-C: `<corruption>/<severity>/<wnid>/<name>.JPEG`, 50 images per class.

    Args:
        root: see `load`.
        transform: see `load`. The images have 224 x 224 pixels: a transform to that size leaves
            them unchanged, and for other sizes they are resized without a crop.
        corruptions: the domains.
        severities: the parts of each domain.
        images: use only these, written as `<wnid>/<name>`: see `image_list`; None uses all.
        partial: see `load`.
    """
    if unknown := set(corruptions) - {*CORRUPTIONS, *HELD_OUT}:
        raise ValueError(f"ImageNet-C has no corruption {sorted(unknown)[0]!r}")
    fitting: Fitting = ExactSize(C_SIZE)
    if transform.crop != C_SIZE:
        fitting = replace(transform, resize=transform.crop)
    tree = _Tree("imagenet-c", root, fitting, partial)
    domains: dict[str, list[FolderImages]] = {}
    for corruption in corruptions:
        parts = {
            severity: tree.part(f"{corruption}/{severity}", images)
            for severity in dict.fromkeys(severities)
        }
        domains[corruption] = [parts[severity] for severity in severities]
    return tree.data_set(domains, None, complete=images is None or len(images) == C_LISTED)


def imagenet_r(root: Path, transform: Transform, *, partial: bool = False) -> DataSet:
    """ImageNet-R: `<wnid>/<name>.jpg` for 200 of the classes. The other logits are dropped."""
    tree = _Tree("imagenet-r", root, transform, partial)
    wnids = [folder for folder in subfolders(tree.root) if folder in INDEX]
    tree.refuse_foreign("")
    tree.expect("classes", len(wnids), R_CLASSES)
    images = tree.images((wnid, label) for label, wnid in enumerate(wnids))
    tree.expect("images", len(images), R_IMAGES)
    return tree.data_set({"imagenet-r": [images]}, tuple(INDEX[wnid] for wnid in wnids))


def imagenet_sketch(root: Path, transform: Transform, *, partial: bool = False) -> DataSet:
    """ImageNet-Sketch: `<wnid>/<name>.JPEG` for all classes."""
    tree = _Tree("imagenet-sketch", root, transform, partial)
    tree.refuse_foreign("")
    images = tree.images(INDEX.items())
    tree.expect("images", len(images), SKETCH_IMAGES)
    return tree.data_set({"imagenet-sketch": [images]}, None)


def imagenet_d109(root: Path, transform: Transform, *, partial: bool = False) -> DataSet:
    """ImageNet-D109: `<domain>/<class>/<name>.jpg` of DomainNet, for classes that ImageNet has.

    The rest of DomainNet is ignored. A class may have several folders.
    """
    tree = _Tree("imagenet-d109", root, transform, partial)
    domains = {}
    for domain, count in D109_IMAGES.items():
        if tree.has(domain):
            images = tree.images(
                (f"{domain}/{folder}", label)
                for label, shared in enumerate(D109)
                for folder in shared.folders
            )
            tree.expect(f"images in {domain}", len(images), count)
            domains[domain] = [images]
    return tree.data_set(domains, tuple(shared.logit for shared in D109))


def folder(root: Path, transform: Transform, *, partial: bool = False) -> DataSet:
    """Your own images: `<class>/<name>`, with the classes in the order of their names.

    If all classes are WordNet ids of ImageNet, labels are those of its 1,000 classes.
    """
    tree = _Tree("folder", root, transform, partial)
    names = subfolders(tree.root)
    index = INDEX if INDEX.keys() >= set(names) else {name: i for i, name in enumerate(names)}
    images = tree.images((name, index[name]) for name in names)
    return tree.data_set({tree.root.resolve().name: [images]}, None)


DATA_SETS: Mapping[str, Callable[..., DataSet]] = {
    "imagenet-c": imagenet_c,
    "imagenet-r": imagenet_r,
    "imagenet-sketch": imagenet_sketch,
    "imagenet-d109": imagenet_d109,
    "folder": folder,
}

FOLDERS: Mapping[str, Sequence[str]] = {
    "imagenet-c": ["imagenet-c"],
    "imagenet-r": ["imagenet-r"],
    "imagenet-sketch": ["imagenet-sketch", "sketch"],
    "imagenet-d109": ["imagenet-d109", "domainnet"],
    "folder": [],
}
"""The usual names of the folder of a data set, regardless of case and of - or _."""


def image_list(file: str | Path | None = None) -> list[str]:
    """Reads a list of images, one `<wnid>/<name>` per line.

    Args:
        file: the list; None for RobustBench's 5,000 images of ImageNet-C, read from its package,
            which must be installed but is not imported.
    """
    file = Path(file) if file is not None else _list_of_robustbench()
    images = file.read_text().split()
    for number, image in enumerate(images, 1):
        wnid, _, name = image.partition("/")
        if wnid not in INDEX or not name or "/" in name:
            raise ValueError(f"{file}: line {number} is not <wnid>/<name>: {image!r}")
    if not images:
        raise ValueError(f"{file} lists no images")
    if len(set(images)) < len(images):
        twice, _ = Counter(images).most_common(1)[0]
        raise ValueError(f"{file} lists {twice} more than once")
    return images


def _list_of_robustbench() -> Path:
    package = importlib.util.find_spec("robustbench")
    if package is None or not package.submodule_search_locations:
        raise ValueError(
            "the list of 5,000 images is part of the package robustbench: `pip install --no-deps "
            "robustbench`, or use your own list"
        )
    return Path(package.submodule_search_locations[0], "helper_files/imagenet_test_image_ids.txt")


class _Tree:
    """Searches the folder of a data set and collects images and problems.

    A partial data set may lack anything, but must not be empty or have unknown classes.
    """

    def __init__(self, name: str, root: Path, transform: Fitting, partial: bool) -> None:
        self.name, self.transform, self.partial = name, transform, partial
        self.root = _find(root, FOLDERS[name])
        self.problems = Problems()

    def images(self, folders: Iterable[tuple[str, int]]) -> FolderImages:
        """Returns all images in these folders, with the labels of their folders."""
        entries: list[Entry] = []
        counts: list[tuple[int, int]] = []
        for name, label in folders:
            found = self._whole(images_in(self.root, name)) if self.has(name) else []
            entries += found
            counts.append((label, len(found)))
        labels = np.repeat(*np.array(counts, np.int64).reshape(-1, 2).T)
        return FolderImages(self.root, entries, labels, self.transform)

    def part(self, prefix: str, listed: Sequence[str] | None) -> FolderImages:
        """Returns the images of a corruption and severity: the listed ones, or 50 per class."""
        if not self.has(prefix):
            return self.images([])
        self.refuse_foreign(prefix)
        if listed is not None:
            return self._listed([f"{prefix}/{path}" for path in listed])
        images = self.images((f"{prefix}/{wnid}", label) for wnid, label in INDEX.items())
        counts = np.bincount(images.labels, minlength=len(INDEX)).tolist()
        for wnid in subfolders(self.root / prefix):  # missing folders are already reported
            if wnid in INDEX:
                self.expect(f"images in {prefix}/{wnid}", counts[INDEX[wnid]], C_PER_CLASS)
        return images

    def _listed(self, paths: Sequence[str]) -> FolderImages:
        sizes = {path: _size(self.root / path) for path in paths}
        self._lacks("missing files", [path for path, size in sizes.items() if size is None])
        entries = self._whole(
            [Entry(path, size) for path, size in sizes.items() if size is not None]
        )
        labels = [INDEX[entry.path.split("/")[-2]] for entry in entries]
        return FolderImages(self.root, entries, labels, self.transform)

    def _whole(self, entries: Sequence[Entry]) -> list[Entry]:
        self._lacks("empty files", [entry.path for entry in entries if not entry.size])
        return [entry for entry in entries if entry.size]

    def has(self, name: str) -> bool:
        """Whether a folder exists. If not, it is a problem."""
        there = (self.root / name).is_dir()
        if not there:
            self._lacks("missing folders", [name])
        return there

    def expect(self, what: str, count: int, expected: int) -> None:
        """Requires a count."""
        if count != expected:
            self._lacks("wrong counts", [f"{count:,} {what}, expected {expected:,}"])

    def refuse_foreign(self, prefix: str) -> None:
        """Requires all folders to be classes of ImageNet."""
        foreign = [name for name in subfolders(self.root / prefix) if name not in INDEX]
        paths = [f"{prefix}/{name}".lstrip("/") for name in foreign]
        self.problems.add("folders that are not classes of ImageNet", paths)

    def _lacks(self, kind: str, culprits: Iterable[str]) -> None:
        if not self.partial:
            self.problems.add(kind, culprits)

    def data_set(
        self,
        domains: Mapping[str, Sequence[FolderImages]],
        classes: tuple[int, ...] | None,
        complete: bool = True,
    ) -> DataSet:
        """Returns the data set, or raises a `DataError` with all problems."""
        found = {name: [part for part in parts if len(part)] for name, parts in domains.items()}
        found = {name: parts for name, parts in found.items() if parts}
        hint = "" if self.partial else " (to use it nevertheless: partial=True or --partial)"
        self.problems.report(f"{self.name} in {self.root} is incomplete or wrong{hint}")
        if not found:
            raise DataError(f"{self.name} in {self.root} has none of the requested images")
        return DataSet(self.name, found, classes, complete and not self.partial)


def _size(file: Path) -> int | None:
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return None


def _find(root: Path, names: Sequence[str]) -> Path:
    """Finds a folder with one of these names in a root, at most two deep; else it is the root."""
    if not root.is_dir():
        raise DataError(f"no such folder: {root}")
    for _ in range(2):  # archives may have a top-level folder
        inner = {name.lower().replace("_", "-"): name for name in subfolders(root)}
        root = next((root / inner[name] for name in names if name in inner), root)
    return root
