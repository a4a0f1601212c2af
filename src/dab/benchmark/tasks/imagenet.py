"""Tasks of data on disk: the shifted test sets of ImageNet, and folders of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dab.benchmark.cell import Cell
from dab.benchmark.tasks.task import (
    PAPER_MODEL,
    PAPER_SHA256,
    PAPER_TAG,
    SOURCE_IMAGES,
    Task,
    TaskRecipe,
    check_classes,
)
from dab.data.corruptions import CORRUPTIONS
from dab.data.datasets import imagenet
from dab.data.datasets.folder import FolderImages
from dab.data.datasets.imagenet_classes import WNIDS
from dab.data.errors import DataError
from dab.data.images import to_tensor
from dab.data.transform import Transform
from dab.models.loading import load_model
from dab.streams import Domain, Setting
from dab.utils.fingerprint import fingerprint

PAPER_PREPROCESSING = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    **asdict(Transform(resize=256, crop=224, interpolation="bilinear")),
}
ROBUSTBENCH_LIST = "40a66a48c5235472"  # of the 5,000 images, sorted

__all__ = ["OnDisk", "create", "published_images", "timing_model"]


@dataclass(frozen=True)
class OnDisk:
    """Pictures that are shifted already.

    Args:
        name: of the data set.
        root: its folder, or one that has it under its usual name.
        transform: makes all pictures one size.
        samples, image_list, partial: see `TaskRecipe`.
    """

    name: str
    root: Path
    transform: Transform
    samples: int | None = None
    image_list: Path | None = None
    partial: bool = False
    _found: dict[Any, imagenet.DataSet] = field(default_factory=dict, compare=False, repr=False)

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """The domains of the data set; of ImageNet-C those that are asked for."""
        options: dict[str, Any] = {}
        if self.name == "imagenet-c":
            options = {
                "corruptions": tuple(corruptions),
                "severities": tuple(setting.severities(severity)),
                "images": self._images(setting),
            }
        elif (tuple(corruptions), severity) != (CORRUPTIONS, 5):
            raise ValueError(f"{self.name} has no corruptions or severities to choose from")
        return [
            Domain(name, [self._part(part) for part in parts])
            for name, parts in self.load(**options).domains.items()
        ]

    def _part(self, images: FolderImages) -> FolderImages:
        return images if self.samples is None else images.spread(self.samples)

    def load(self, **options: Any) -> imagenet.DataSet:
        """The data set, looked through once: all streams of the task are of the same files."""
        key = tuple(options.values())
        if key not in self._found:
            self._found[key] = imagenet.load(
                self.name, self.root, self.transform, partial=self.partial, **options
            )
        return self._found[key]

    def _images(self, setting: Setting) -> tuple[str, ...] | None:
        """Correlated streams show all of ImageNet-C, others those of a list."""
        if setting.correlated or (self.partial and self.image_list is None):
            return None
        return tuple(imagenet.image_list(self.image_list))


def create(recipe: TaskRecipe) -> Task:
    """A task of a data set on disk."""
    if recipe.root is None:
        raise ValueError(f"{recipe.name} is read from disk: name its folder with --root")
    for folder in filter(None, (recipe.root, recipe.source_images)):
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
    name = recipe.model or PAPER_MODEL
    loaded = load_model(name)
    data = OnDisk(
        recipe.name,
        recipe.root,
        loaded.transform,
        recipe.samples,
        recipe.image_list,
        recipe.partial,
    )
    # ImageNet-C has all classes, and is large: it is only looked through where it is shown.
    classes = None if recipe.name == "imagenet-c" else data.load().classes
    if recipe.name == "folder":
        _check_labels(data, loaded.card["classes"], name)
    else:
        check_classes(name, loaded.card["classes"], "ImageNet", len(WNIDS))
    card = load_model(name, classes=classes).card if classes else loaded.card
    source = recipe.source_images
    return Task(
        recipe.name,
        data,
        lambda: load_model(name, classes=classes).model,
        card,
        None if source is None else cache(partial(_source_images, source, loaded.transform)),
        published_as=_published_as(recipe, card),
    )


def _check_labels(data: OnDisk, classes: int, model: str) -> None:
    """Refuse a folder with classes that the model does not have: it is never right about them."""
    ((images,),) = data.load().domains.values()
    last = int(images.labels.max())
    if last >= classes:
        raise ValueError(f"{data.root} has a class {last}, {model} has {classes}, from 0 on")


def timing_model(recipe: TaskRecipe) -> tuple[nn.Module, Sequence[int]]:
    """A net as large as the task's, and the shape of its images: weights take no part in times."""
    name = recipe.model or PAPER_MODEL
    if name.startswith(("torchvision/", "timm/")):
        name = f"{name.partition('@')[0]}@random"
    model, transform, _ = load_model(name)
    return model, (3, transform.crop, transform.crop)


def published_images(cell: Cell, samples: int | None = None) -> int:
    """The images of a cell's stream if the data, or so many a domain, are those published.

    >>> published_images(Cell("dab", data="imagenet-c"))
    75000
    """
    domains = {
        "imagenet-c": [imagenet.C_LISTED] * len(cell.corruptions),
        "imagenet-r": [imagenet.R_IMAGES],
        "imagenet-sketch": [imagenet.SKETCH_IMAGES],
        "imagenet-d109": list(imagenet.D109_IMAGES.values()),
    }
    if cell.data not in domains:
        raise ValueError(f"{cell.data} is read from disk: name its folder with --root")
    sizes, parts = domains[cell.data], 1
    if cell.data == "imagenet-c":
        parts = len(cell.setting.severities(cell.severity))
        if cell.setting.correlated:
            sizes = [imagenet.C_PER_CLASS * len(WNIDS)] * len(cell.corruptions)
    return parts * sum(size if samples is None else min(size, samples) for size in sizes)


def _source_images(folder: Path, transform: Transform) -> Tensor:
    (images,) = imagenet.load("folder", folder, transform, partial=True).domains.values()
    chosen = images[0].spread(min(SOURCE_IMAGES, len(images[0])))
    return to_tensor(chosen.batch(range(len(chosen))))


def _published_as(recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
    """The column of the paper's tables, if data, weights and preprocessing are those of there."""
    same_weights = card.get("tag") == PAPER_TAG or card.get("sha256", "").startswith(PAPER_SHA256)
    same_model = card["name"] == PAPER_MODEL and same_weights
    same_pixels = card["preprocessing"] == PAPER_PREPROCESSING
    whole = recipe.samples is None and not recipe.partial and recipe.name != "folder"
    if recipe.image_list is not None:
        listed = sorted(imagenet.image_list(recipe.image_list))
        whole = whole and fingerprint(*listed) == ROBUSTBENCH_LIST
    return recipe.name.replace("-", "_") if same_model and same_pixels and whole else None
