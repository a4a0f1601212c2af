"""CIFAR-10."""

from __future__ import annotations

from pathlib import Path

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import published_column, shipped_model
from dab.benchmark.tasks.task import SOURCE_IMAGES, Clean, Task
from dab.data.cache import cache_folder
from dab.data.images import to_tensor

__all__ = ["CIFAR10Task"]


@register_task("cifar10")
class CIFAR10Task(TaskFactory):
    """The test images of CIFAR-10, 32 pixels."""

    images = 10_000
    classes = 10
    default_model = "dab/cifar10"
    takes = ("root",)
    can_download = True

    def create(self, recipe: TaskRecipe) -> Task:
        from dab.data.datasets.cifar10 import CIFAR10

        folder = recipe.root or cache_folder() / "cifar10"
        model, card = shipped_model(recipe)
        return Task(
            self.name,
            Clean(CIFAR10(folder, "test"), recipe.samples),
            model,
            card,
            lambda: to_tensor(CIFAR10(folder, "train").batch(range(SOURCE_IMAGES))),
            published_as=published_column(recipe, card),
        )

    def download(self, root: Path | None) -> str:
        from dab.data.datasets.cifar10 import CIFAR10, fetch

        file = fetch(root or cache_folder() / "cifar10")
        return f"{file}: {len(CIFAR10(file.parent, 'test')):,} test images"
