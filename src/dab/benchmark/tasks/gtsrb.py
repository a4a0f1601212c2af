"""GTSRB: real video of traffic signs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dab.benchmark.cell import Cell
from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import named_model
from dab.benchmark.tasks.task import SOURCE_IMAGES, Clean, Task
from dab.data.images import Images, to_tensor

if TYPE_CHECKING:
    from dab.data.datasets.imagenet import DataSet

__all__ = ["GTSRBTask"]

PUBLISHED = 653 * 30  # frames of every other of the 1,307 published tracks


@register_task("gtsrb")
class GTSRBTask(TaskFactory):
    """Traffic signs in tracks of 30 video frames; every other track of GTSRB, 32 pixels.

    A model may learn from the rest. A part of the data is always whole tracks.
    """

    classes = 43
    takes = ("root",)
    needs_root = True

    def create(self, recipe: TaskRecipe) -> Task:
        from dab.data.datasets.gtsrb import GTSRB

        assert recipe.root is not None  # see `needs_root`
        data = GTSRB(recipe.root)
        test = data.half("test")
        return Task(
            self.name,
            Clean(test if recipe.samples is None else test.spread(recipe.samples)),
            *named_model(recipe, self.classes),
            lambda: _source_images(data.half("train")),
        )

    def count(self, cell: Cell, recipe: TaskRecipe) -> int | None:
        """The published images; None if a folder is given, which may have fewer."""
        if recipe.root is not None:
            return None
        frames = PUBLISHED if recipe.samples is None else min(PUBLISHED, recipe.samples)
        return frames * cell.setting.showings(len(cell.corruptions), cell.severity)

    def check(self, root: Path, *, partial: bool = False, **choice: Any) -> DataSet:
        from dab.data.datasets.folder import FolderImages
        from dab.data.datasets.gtsrb import GTSRB, IMAGES
        from dab.data.datasets.imagenet import DataSet

        images = GTSRB(root).images
        if choice or not isinstance(images, FolderImages):
            return super().check(root, partial=partial, **choice)
        return DataSet(self.name, {"all tracks": [images]}, None, len(images) == IMAGES)


def _source_images(train: Images) -> Tensor:
    size = min(SOURCE_IMAGES, len(train))
    return to_tensor(train.batch([number * len(train) // size for number in range(size)]))
