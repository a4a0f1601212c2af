"""CIFAR-100."""

from __future__ import annotations

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import named_model
from dab.benchmark.tasks.task import SOURCE_IMAGES, Clean, Task
from dab.data.images import to_tensor

__all__ = ["CIFAR100Task"]


@register_task("cifar100")
class CIFAR100Task(TaskFactory):
    """The test images of CIFAR-100, 32 pixels."""

    images = 10_000
    classes = 100
    takes = ("root",)
    needs_root = True

    def create(self, recipe: TaskRecipe) -> Task:
        from dab.data.datasets.cifar100 import CIFAR100

        assert recipe.root is not None  # see `needs_root`
        root = recipe.root
        return Task(
            self.name,
            Clean(CIFAR100(root, "test"), recipe.samples),
            *named_model(recipe, self.classes),
            lambda: to_tensor(CIFAR100(root, "train").batch(range(SOURCE_IMAGES))),
        )
