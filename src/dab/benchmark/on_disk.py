"""Tasks of data on disk: the shifted test sets of ImageNet, and folders of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dab.benchmark.cell import Cell
from dab.benchmark.task import PAPER_MODEL, PAPER_SHA256, PAPER_TAG, SOURCE_IMAGES, Task, TaskRecipe
from dab.corruptions import CORRUPTIONS
from dab.datasets import imagenet
from dab.datasets.folder import FolderImages
from dab.datasets.imagenet_classes import WNIDS
from dab.datasets.images import to_tensor
from dab.models.loading import load_model
from dab.models.transform import Transform
from dab.streams import Domain, Setting

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
        elif tuple(corruptions) != CORRUPTIONS:
            raise ValueError(f"{self.name} has no corruptions to choose from")
        return [
            Domain(name, [self._part(part) for part in parts])
            for name, parts in self.load(**options).domains.items()
        ]

    def _part(self, images: FolderImages) -> FolderImages:
        return images if self.samples is None else images.spread(self.samples)

    def load(self, **options: Any) -> imagenet.DataSet:
        """The data set, looked through once for all runs of a process."""
        return _load(self.name, self.root, self.transform, self.partial, **options)

    def _images(self, setting: Setting) -> tuple[str, ...] | None:
        """Correlated streams show all of ImageNet-C, others RobustBench's 5,000 images."""
        if self.image_list is None and (self.partial or setting.correlated):
            return None
        return tuple(imagenet.image_list(self.image_list))


@cache
def _load(
    name: str, root: Path, transform: Transform, partial: bool, **options: Any
) -> imagenet.DataSet:
    return imagenet.load(name, root, transform, partial=partial, **options)


def create(recipe: TaskRecipe) -> Task:
    """A task of a data set on disk."""
    if recipe.root is None:
        raise ValueError(f"{recipe.name} is read from disk: name its folder with --root")
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
    card = load_model(name, classes=classes).card if classes else loaded.card
    if recipe.name == "folder":
        _check_labels(data, card["classes"], name)
    return Task(
        recipe.name,
        data,
        partial(_model, name, classes),
        card,
        partial(_source_images, recipe.source_images, loaded.transform),
        published_as=_published_as(recipe, card),
    )


def _check_labels(data: OnDisk, classes: int, model: str) -> None:
    """Refuse a folder with more classes than the model has: it could never be right about them."""
    ((images,),) = data.load().domains.values()
    needed = int(images.labels.max()) + 1
    if needed > classes:
        raise ValueError(f"{data.root} has {needed} classes, {model} puts out {classes}")


def timing_model(recipe: TaskRecipe) -> tuple[nn.Module, Sequence[int]]:
    """A net as large as the task's, and the shape of its images: weights take no part in times."""
    name = recipe.model or PAPER_MODEL
    if name.startswith(("torchvision/", "timm/")):
        name = f"{name.partition('@')[0]}@random"
    model, transform, _ = load_model(name)
    return model, (3, transform.crop, transform.crop)


def published_images(cell: Cell) -> int:
    """The images of a cell's stream if the data are those that were published.

    >>> published_images(Cell("dab", data="imagenet-c"))
    75000
    """
    if cell.data == "imagenet-c":
        images = imagenet.C_PER_CLASS * len(WNIDS) if cell.setting.correlated else imagenet.C_LISTED
        return images * len(cell.corruptions) * len(cell.setting.severities(cell.severity))
    sizes = {
        "imagenet-r": imagenet.R_IMAGES,
        "imagenet-sketch": imagenet.SKETCH_IMAGES,
        "imagenet-d109": sum(imagenet.D109_IMAGES.values()),
    }
    if cell.data not in sizes:
        raise ValueError(f"{cell.data} is read from disk: name its folder with --root")
    return sizes[cell.data]


def _model(name: str, classes: Sequence[int] | None) -> nn.Module:
    return load_model(name, classes=classes).model


def _source_images(folder: Path | None, transform: Transform) -> Tensor | None:
    if folder is None:
        return None
    (images,) = imagenet.load("folder", folder, transform, partial=True).domains.values()
    chosen = images[0].spread(min(SOURCE_IMAGES, len(images[0])))
    return to_tensor(chosen.batch(range(len(chosen))))


def _published_as(recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
    """The column of the paper's tables, if nothing about model and data was chosen otherwise."""
    chosen = recipe.samples, recipe.image_list, recipe.partial
    same_weights = card.get("tag") == PAPER_TAG or card.get("sha256", "").startswith(PAPER_SHA256)
    same_model = card["name"] == PAPER_MODEL and same_weights
    if recipe.name == "folder" or chosen != (None, None, False) or not same_model:
        return None
    return recipe.name.replace("-", "_")
