"""Folders of a user's own images."""

from __future__ import annotations

from dab.benchmark.tasks.on_disk import OnDisk, OnDiskTask
from dab.benchmark.tasks.registry import register_task

__all__ = ["FolderTask"]


@register_task("folder")
class FolderTask(OnDiskTask):
    """Your own images, stored as CLASS/IMAGE."""

    def kept_classes(self, data: OnDisk, model: str, classes: int) -> tuple[int, ...] | None:
        """All, if the model has those of the folder: it is never right about any other."""
        ((images,),) = data.load().values()
        last = int(images.labels.max())
        if last >= classes:
            raise ValueError(
                f"{data.root} contains class index {last}, but {model} has {classes} classes "
                f"(0 to {classes - 1})"
            )
        return None
