"""What methods are compared on: a model, and the images that it meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dab.data.cache import cache_folder
from dab.data.corrupted import Corrupted
from dab.data.images import Images, Subset, to_tensor
from dab.models import zoo
from dab.streams import Domain, Setting
from dab.utils.fingerprint import fingerprint

__all__ = [
    "ON_DISK",
    "PAPER_MODEL",
    "PAPER_SHA256",
    "PAPER_TAG",
    "TASKS",
    "Clean",
    "Shifts",
    "Task",
    "TaskRecipe",
]

ON_DISK = ("imagenet-c", "imagenet-r", "imagenet-sketch", "imagenet-d109", "folder")

PAPER_MODEL = "torchvision/vit_b_16"
PAPER_TAG, PAPER_SHA256 = "IMAGENET1K_V1", "c867db91"  # its file is vit_b_16-c867db91.pth

SOURCE_IMAGES = 2000  # that a method is given: what EATA estimates its Fisher information from


class Shifts(Protocol):
    """Where the domains of a stream come from."""

    def domains(
        self, corruptions: Sequence[str], severity: int, setting: Setting, cache: Path | None
    ) -> list[Domain]:
        """The domains of a stream; data without corruptions have their own."""
        ...


@dataclass(frozen=True)
class Clean:
    """Clean images; corruptions make the domains.

    Args:
        images: those that the model was not trained on.
        samples: only the first images are shown, this many; None for all.
    """

    images: Images
    samples: int | None = None

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """The images under each corruption, kept in the cache."""
        return [
            Domain(
                name,
                [
                    self._part(Corrupted(self.images, name, s, cache))
                    for s in setting.severities(severity)
                ],
            )
            for name in corruptions
        ]

    def _part(self, images: Images) -> Images:
        return images if self.samples is None else Subset(images, self.samples)


@dataclass(frozen=True)
class Task:
    """A trained model and the data that it meets.

    Args:
        name: of the data in tables.
        data: makes the domains.
        model: makes the source model, for [0, 1] images.
        model_card: what tells this model from others besides its weights: name, preprocessing.
        source_images: makes a batch of training images, for methods that ask for some; None
            where there are none.
        published_as: the column of the paper's tables, if model and data are the same as there.
    """

    name: str
    data: Shifts
    model: Callable[[], nn.Module]
    model_card: Mapping[str, Any]
    source_images: Callable[[], Tensor] | None
    published_as: str | None = None

    @property
    def weights(self) -> str:
        """A hash of the source model's weights."""
        return self._model_facts[0]

    @property
    def layers(self) -> frozenset[type[nn.Module]]:
        """The classes of the source model's layers."""
        return self._model_facts[1]

    @cached_property
    def _model_facts(self) -> tuple[str, frozenset[type[nn.Module]]]:
        """What a run's identity has to know of the model, which is created once for all of it."""
        model = self.model()
        values = ((name, value.cpu().reshape(-1)) for name, value in model.state_dict().items())
        weights = chain(*((name, value.view(torch.uint8).numpy()) for name, value in values))
        return fingerprint(*weights), frozenset(map(type, model.modules()))


@dataclass(frozen=True)
class TaskRecipe:
    """How to make a task, in plain values that can be sent to any process.

    Args:
        name: one of `TASKS`.
        samples: only so many images of each domain are shown; None for all.
        root: the folder with the data, where any is needed.
        model: a name for `dab.load_model`; None for the one that goes with the data.
        image_list: file with the images of ImageNet-C to show; None for the published ones.
        source_images: folder with images as the model was trained on, for methods that ask for
            some; only for data on disk.
        partial: whether data on disk may be incomplete.

    >>> TaskRecipe("mnist")
    Traceback (most recent call last):
    ValueError: unknown data 'mnist'; there are: cifar10, folder, glyphs, imagenet-c, ...
    """

    name: str
    samples: int | None = None
    root: Path | None = None
    model: str | None = None
    image_list: Path | None = None
    source_images: Path | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise ValueError(f"unknown data {self.name!r}; there are: {', '.join(sorted(TASKS))}")
        if self.name not in ON_DISK and (self.source_images or self.partial):
            raise ValueError(f"--source-images and --partial are for data on disk, not {self.name}")
        if self.name != "imagenet-c" and self.image_list:
            raise ValueError(f"a list of images is for imagenet-c, not for {self.name}")

    def create(self) -> Task:
        """The task, with the data as they are now."""
        return TASKS[self.name](self)


def _model(recipe: TaskRecipe, shipped: str) -> tuple[Callable[[], nn.Module], Mapping[str, Any]]:
    """What makes the recipe's model, or else the shipped one, and its card."""
    if recipe.model is None:
        return partial(zoo.load, shipped), zoo.card(shipped)
    from dab.models.loading import load_model

    name, card = recipe.model, load_model(recipe.model).card
    check_classes(name, card["classes"], shipped, zoo.classes(shipped))
    return lambda: load_model(name).model, card


def check_classes(model: str, found: int, data: str, needed: int) -> None:
    """Refuse a model of other classes than the data's: its figures would mean nothing."""
    if found != needed:
        raise ValueError(f"{data} has {needed} classes, {model} puts out {found}")


def _glyphs(recipe: TaskRecipe) -> Task:
    from dab.data.datasets.glyphs import Glyphs

    return Task(
        "glyphs",
        # They are drawn on demand, so there are as many as anybody asks for.
        Clean(Glyphs.of_split("test", max(10_000, recipe.samples or 0)), recipe.samples),
        *_model(recipe, "glyphs"),
        lambda: to_tensor(Glyphs.of_split("train", SOURCE_IMAGES).batch(range(SOURCE_IMAGES))),
    )


def _cifar10(recipe: TaskRecipe) -> Task:
    from dab.data.datasets.cifar10 import CIFAR10

    folder = recipe.root or cache_folder() / "cifar10"
    return Task(
        "cifar10",
        Clean(CIFAR10(folder, "test"), recipe.samples),
        *_model(recipe, "cifar10"),
        lambda: to_tensor(CIFAR10(folder, "train").batch(range(SOURCE_IMAGES))),
    )


def _on_disk(recipe: TaskRecipe) -> Task:
    from dab.benchmark.tasks.imagenet import create

    return create(recipe)


TASKS: Mapping[str, Callable[[TaskRecipe], Task]] = {
    "glyphs": _glyphs,
    "cifar10": _cifar10,
    **dict.fromkeys(ON_DISK, _on_disk),
}
