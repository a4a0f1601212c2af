"""Tasks of images in a folder, which are already shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe
from dab.benchmark.tasks.task import SOURCE_IMAGES, Task
from dab.data.corruptions import CORRUPTIONS
from dab.data.datasets import imagenet
from dab.data.datasets.folder import FolderImages
from dab.data.errors import DataError
from dab.data.images import to_tensor
from dab.data.transform import Transform
from dab.models.loading import load_model
from dab.streams import Domain, Setting

__all__ = ["DEFAULT_MODEL", "DEFAULT_TAG", "OnDisk", "OnDiskTask"]

DEFAULT_MODEL, DEFAULT_TAG = "torchvision/vit_b_16", "IMAGENET1K_V1"


@dataclass(frozen=True)
class OnDisk:
    """Images that are already shifted.

    Args:
        name: of the data set.
        root: its folder, or one that contains it under its usual name.
        transform: makes all images one size.
        samples, partial: see `TaskRecipe`.
    """

    name: str
    root: Path
    transform: Transform
    samples: int | None = None
    partial: bool = False
    _found: dict[Any, imagenet.DataSet] = field(default_factory=dict, compare=False, repr=False)

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """The domains of the data set."""
        return [
            Domain(name, [self._part(part) for part in parts])
            for name, parts in self.load(**self.choice(corruptions, severity, setting)).items()
        ]

    def choice(
        self, corruptions: Sequence[str], severity: int, setting: Setting
    ) -> Mapping[str, Any]:
        """What to load of the data set: all of it, unless it has corruptions to choose from."""
        if (tuple(corruptions), severity) != (CORRUPTIONS, 5):
            raise ValueError(f"{self.name} has no corruptions or severities to choose from")
        return {}

    def _part(self, images: FolderImages) -> FolderImages:
        return images if self.samples is None else images.spread(self.samples)

    def load(self, **choice: Any) -> Mapping[str, Sequence[FolderImages]]:
        """The parts of each domain."""
        return self.found(**choice).domains

    def found(self, **choice: Any) -> imagenet.DataSet:
        """The data set, scanned once: all streams of a task show the same files."""
        key = tuple(choice.values())
        if key not in self._found:
            self._found[key] = imagenet.load(
                self.name, self.root, self.transform, partial=self.partial, **choice
            )
        return self._found[key]


class OnDiskTask(TaskFactory):
    """A data set in a folder."""

    default_model, default_tag = DEFAULT_MODEL, DEFAULT_TAG
    takes: ClassVar[Sequence[str]] = ("root", "source_images", "partial")
    needs_root = True
    has_corruptions = False

    def create(self, recipe: TaskRecipe) -> Task:
        assert recipe.root is not None  # see `needs_root`
        for folder in filter(None, (recipe.root, recipe.source_images)):
            if not folder.is_dir():
                raise DataError(f"there is no folder {folder}")
        name = recipe.model or self.default_model
        loaded = load_model(name)
        data = self.data(recipe, loaded.transform)
        classes = self.kept_classes(data, name, loaded.card["classes"])
        card = load_model(name, classes=classes).card if classes else loaded.card
        source = recipe.source_images
        return Task(
            self.name,
            data,
            lambda: load_model(name, classes=classes).model,
            card,
            None if source is None else cache(partial(_source_images, source, loaded.transform)),
            published_as=self.published_as(recipe, card),
        )

    def data(self, recipe: TaskRecipe, transform: Transform) -> OnDisk:
        """The images of a recipe."""
        assert recipe.root is not None
        return OnDisk(self.name, recipe.root, transform, recipe.samples, recipe.partial)

    def check(self, root: Path, *, partial: bool = False, **choice: Any) -> imagenet.DataSet:
        if choice and not self.has_corruptions:
            raise ValueError(
                f"--list, --corruptions and --severity do not apply to {self.name}: it has no "
                "corruptions"
            )
        return imagenet.load(self.name, root, Transform(), partial=partial, **choice)

    def kept_classes(self, data: OnDisk, model: str, classes: int) -> tuple[int, ...] | None:
        """The logits that are kept, None for all; refuses a model of the wrong classes."""
        return None

    def published_as(self, recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
        """The column of the paper's tables, if the task is the paper's."""
        return None

    def timing_model(self, recipe: TaskRecipe) -> tuple[nn.Module, Sequence[int]]:
        """The network with random weights, which cost the same; no data are needed."""
        name = recipe.model or self.default_model
        if name.startswith(("torchvision/", "timm/")):
            name = f"{name.partition('@')[0]}@random"
        model, transform, _ = load_model(name)
        return model, (3, transform.crop, transform.crop)


def _source_images(folder: Path, transform: Transform) -> Tensor:
    (images,) = imagenet.load("folder", folder, transform, partial=True).domains.values()
    chosen = images[0].spread(min(SOURCE_IMAGES, len(images[0])))
    return to_tensor(chosen.batch(range(len(chosen))))
