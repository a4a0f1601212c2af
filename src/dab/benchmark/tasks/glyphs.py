"""Glyphs: synthetic letters that are drawn when needed."""

from __future__ import annotations

from dab.benchmark.tasks.registry import TaskFactory, TaskRecipe, register_task
from dab.benchmark.tasks.shipped import shipped_model
from dab.benchmark.tasks.task import SOURCE_IMAGES, Clean, Task
from dab.data.images import to_tensor

__all__ = ["GlyphsTask"]


@register_task("glyphs")
class GlyphsTask(TaskFactory):
    """Synthetic letters in random fonts, colors and positions, 32 pixels."""

    images = 10_000
    classes = 100
    default_model = "dab/glyphs"

    def create(self, recipe: TaskRecipe) -> Task:
        from dab.data.datasets.glyphs import Glyphs

        return Task(
            self.name,
            # They are drawn on demand, so there are as many as anybody asks for.
            Clean(Glyphs.of_split("test", max(self.images, recipe.samples or 0)), recipe.samples),
            *shipped_model(recipe),
            lambda: to_tensor(Glyphs.of_split("train", SOURCE_IMAGES).batch(range(SOURCE_IMAGES))),
        )
