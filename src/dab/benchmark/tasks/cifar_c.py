"""CIFAR-10-C and CIFAR-100-C, as published."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import Model, named_model, shipped_model
from dab.benchmark.tasks.task import Task
from dab.data.datasets.cifar_c import CIFARC, Name
from dab.data.images import Images, Subset
from dab.streams import Domain, Setting

__all__ = ["CIFAR10CTask", "CIFAR100CTask", "PublishedFiles"]


@dataclass(frozen=True)
class PublishedFiles:
    """Images that are already corrupted; each corruption is a domain.

    Args:
        name: of the data set.
        root: its folder, or one that contains it under its usual name.
        samples: show only the first `samples` images; None shows all.
    """

    name: Name
    root: Path
    samples: int | None = None

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """Returns the images under each corruption."""
        return [
            Domain(name, [self._part(name, s) for s in setting.severities(severity)])
            for name in corruptions
        ]

    def _part(self, corruption: str, severity: int) -> Images:
        images = CIFARC(self.name, self.root, corruption, severity)
        return images if self.samples is None else Subset(images, self.samples)


class _CIFARCTask(TaskFactory):
    images = 10_000
    takes = ("root",)
    needs_root = True
    data_set: ClassVar[Name]

    def create(self, recipe: TaskRecipe) -> Task:
        assert recipe.root is not None  # see `needs_root`
        data = PublishedFiles(self.data_set, recipe.root, recipe.samples)
        return Task(self.name, data, *self.model(recipe), source_images=None)

    @abstractmethod
    def model(self, recipe: TaskRecipe) -> Model:
        """Returns what makes the model, and the model's card."""


@register_task("cifar10-c")
class CIFAR10CTask(_CIFARCTask):
    """CIFAR-10-C from its published files, 32 pixels."""

    classes = 10
    data_set = "cifar10-c"
    default_model = "dab/cifar10"

    def model(self, recipe: TaskRecipe) -> Model:
        return shipped_model(recipe, "cifar10")


@register_task("cifar100-c")
class CIFAR100CTask(_CIFARCTask):
    """CIFAR-100-C from its published files, 32 pixels."""

    classes = 100
    data_set = "cifar100-c"

    def model(self, recipe: TaskRecipe) -> Model:
        return named_model(recipe, self.classes)
