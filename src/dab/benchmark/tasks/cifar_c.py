"""CIFAR-10-C and CIFAR-100-C, as published."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import Model, named_model, published_column, shipped_model
from dab.benchmark.tasks.task import ByCorruption, Task, refuse_clean
from dab.data.datasets.cifar_c import CIFARC, Name
from dab.data.images import Images

__all__ = ["CIFAR10CTask", "CIFAR100CTask", "PublishedFiles"]


@dataclass(frozen=True)
class PublishedFiles(ByCorruption):
    """Images that are already corrupted; each corruption is a domain.

    Args:
        name: of the data set.
        root: its folder, or one that contains it under its usual name.
        samples: show only the first `samples` images; None shows all.
    """

    name: Name
    root: Path
    samples: int | None = None

    def corrupted(self, corruption: str, severity: int, cache: Path | None) -> Images:
        """The published images of a corruption."""
        if severity == 0:
            refuse_clean(self.name)
        return CIFARC(self.name, self.root, corruption, severity)


class _CIFARCTask(TaskFactory):
    images = 10_000
    takes = ("root",)
    needs_root = True

    def create(self, recipe: TaskRecipe) -> Task:
        assert recipe.root is not None  # see `needs_root`
        data = PublishedFiles(cast(Name, self.name), recipe.root, recipe.samples)
        model, card = self.model(recipe)
        column = published_column(recipe, card)
        return Task(self.name, data, model, card, source_images=None, published_as=column)

    @abstractmethod
    def model(self, recipe: TaskRecipe) -> Model:
        """Returns what makes the model, and the model's card."""


@register_task("cifar10-c")
class CIFAR10CTask(_CIFARCTask):
    """CIFAR-10-C from its published files, 32 pixels."""

    classes = 10
    default_model = "dab/cifar10"

    def model(self, recipe: TaskRecipe) -> Model:
        return shipped_model(recipe, "cifar10")


@register_task("cifar100-c")
class CIFAR100CTask(_CIFARCTask):
    """CIFAR-100-C from its published files, 32 pixels."""

    classes = 100

    def model(self, recipe: TaskRecipe) -> Model:
        return named_model(recipe, self.classes)
