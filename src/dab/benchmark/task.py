"""What methods are compared on: a model, and the images that it meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dab.datasets.cache import cache_folder
from dab.datasets.corrupted import Corrupted
from dab.datasets.images import Images, Subset, to_tensor
from dab.models import zoo
from dab.streams import Domain, Setting

__all__ = ["TASKS", "Task", "create_task"]

SOURCE_IMAGES = 2000  # what EATA estimates its Fisher information from


@dataclass(frozen=True)
class Task:
    """A trained model and clean test images; corruptions make the domains.

    Args:
        name: of the data in tables.
        images: clean ones that the model was not trained on.
        model: makes the source model, for [0, 1] images.
        model_card: what tells this model from others besides its weights: name, preprocessing.
        source_images: makes a batch of training images, for methods that ask for some.
        samples: only the first images are shown, this many; None for all.
    """

    name: str
    images: Images
    model: Callable[[], nn.Module]
    model_card: Mapping[str, Any]
    source_images: Callable[[], Tensor]
    samples: int | None = None

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """The images under each corruption; a "gradual" one grows up to the severity and fades."""
        severities = [severity]
        if setting.shift == "gradual":
            severities = [*range(1, severity), *range(severity, 0, -1)]
        return [
            Domain(name, [self._part(Corrupted(self.images, name, s, cache)) for s in severities])
            for name in corruptions
        ]

    def _part(self, images: Images) -> Images:
        return images if self.samples is None else Subset(images, self.samples)


def _glyphs(root: Path | None) -> Task:
    from dab.datasets.glyphs import Glyphs

    return Task(
        "glyphs",
        Glyphs.of_split("test", 10_000),
        lambda: zoo.load("glyphs"),
        zoo.card("glyphs"),
        lambda: to_tensor(Glyphs.of_split("train", SOURCE_IMAGES).batch(range(SOURCE_IMAGES))),
    )


def _cifar10(root: Path | None) -> Task:
    from dab.datasets.cifar10 import CIFAR10

    folder = root or cache_folder() / "cifar10"
    return Task(
        "cifar10",
        CIFAR10(folder, "test"),
        lambda: zoo.load("cifar10"),
        zoo.card("cifar10"),
        lambda: to_tensor(CIFAR10(folder, "train").batch(range(SOURCE_IMAGES))),
    )


TASKS: Mapping[str, Callable[[Path | None], Task]] = {"glyphs": _glyphs, "cifar10": _cifar10}


def create_task(name: str, *, samples: int | None = None, root: Path | None = None) -> Task:
    """A task by name.

    Args:
        name: one of `TASKS`.
        samples: only the first images are shown, this many; None for all.
        root: the folder with the data, where any is needed.
    """
    if name not in TASKS:
        raise ValueError(f"unknown data {name!r}; there are: {', '.join(sorted(TASKS))}")
    return replace(TASKS[name](root), samples=samples)
