"""Tasks by name. A data set registers a factory, which also states what the data set needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import nn

from dab.benchmark.tasks.task import Clean, Task
from dab.data.corruptions import CORRUPTIONS
from dab.data.images import to_tensor
from dab.streams import Setting
from dab.utils.registry import Registry
from dab.utils.text import summary

if TYPE_CHECKING:
    from dab.benchmark.cell import Cell
    from dab.data.datasets.imagenet import DataSet

__all__ = ["TASKS", "TaskFactory", "TaskRecipe", "register_task", "task_factory"]

# Fields of a recipe that only some data sets have a use for.
SPECIAL = ("root", "image_list", "source_images", "partial")


class TaskFactory(ABC):
    """Makes the tasks of one data set. The first line of the docstring describes the data.

    The command line, its help and its checks follow from the class attributes.
    """

    name: ClassVar[str]  # set by `register_task`
    images: ClassVar[int | None] = None  # per domain; None if the folder decides
    classes: ClassVar[int | None] = None  # None if the folder decides
    default_model: ClassVar[str] = ""  # used unless a recipe names another
    takes: ClassVar[Sequence[str]] = ()  # what a recipe may name: "root", "partial", ...
    needs_root: ClassVar[bool] = False
    can_download: ClassVar[bool] = False  # whether `download` works
    has_corruptions: ClassVar[bool] = True  # False for data that are already shifted

    @abstractmethod
    def create(self, recipe: TaskRecipe) -> Task:
        """The task, with the data as they are now."""

    def count(self, cell: Cell, recipe: TaskRecipe) -> int | None:
        """The images in a cell's stream if no data are needed to tell, else None."""
        if self.images is None or not self.has_corruptions:
            return None
        per_domain = self.images if recipe.samples is None else recipe.samples
        return per_domain * len(cell.corruptions) * len(cell.setting.severities(cell.severity))

    def timing_model(self, recipe: TaskRecipe) -> tuple[nn.Module, Sequence[int]]:
        """A model as fast as the task's, and the shape of its images."""
        task = recipe.create()
        if isinstance(task.data, Clean):
            images = task.data.images
        else:
            images = task.data.domains(CORRUPTIONS, 5, Setting(), None)[0].parts[0]
        return task.model(), to_tensor(images.batch([0])).shape[1:]

    def download(self, root: Path | None) -> str:
        """Download the data into a folder, or the user's cache; returns what is there now."""
        able = [name for name in TASKS if TASKS[name].can_download]
        raise ValueError(f"dab cannot download {self.name}, only: {', '.join(able)}")

    def check(self, root: Path, *, partial: bool = False, **choice: Any) -> DataSet:
        """The data in a folder; a `DataError` lists everything that is missing or unexpected.

        Args:
            root: folder of the data.
            partial: accept an incomplete data set.
            choice: of ImageNet-C: `images`, `corruptions` and `severities`.
        """
        raise ValueError(f"{self.name} has no check: its files are verified whenever they are read")

    @property
    def summary(self) -> str:
        """What the data are, in one line."""
        return summary(type(self))

    @property
    def needs(self) -> str:
        """What a user has to provide."""
        if self.can_download:
            return f"dab data get {self.name}"
        return "--root FOLDER" if self.needs_root else "nothing"


TASKS: Registry[type[TaskFactory]] = Registry("data")

Factory = TypeVar("Factory", bound=type[TaskFactory])


def register_task(name: str) -> Callable[[Factory], Factory]:
    """Class decorator that makes a data set known by name, also from outside the package."""

    def decorate(cls: Factory) -> Factory:
        TASKS.register(name)(cls)
        cls.name = name
        return cls

    return decorate


def task_factory(name: str) -> TaskFactory:
    """The factory registered under a name.

    >>> task_factory("glyphs").classes
    100
    """
    return TASKS[name]()


@dataclass(frozen=True)
class TaskRecipe:
    """How to make a task, in plain values that can be sent to any process.

    Args:
        name: of a registered data set; see `TASKS`.
        samples: show only this many images of each domain; None shows all.
        root: folder of the data.
        model: a name for `dab.load_model`; None for the data set's default.
        image_list: file with the images of ImageNet-C to show; None for the published ones.
        source_images: folder with training images of the model, for methods that ask for some.
        partial: accept an incomplete data set.

    >>> TaskRecipe("cifra10")
    Traceback (most recent call last):
    ValueError: unknown data 'cifra10'; did you mean 'cifar10'? available: cifar10, ...
    """

    name: str
    samples: int | None = None
    root: Path | None = None
    model: str | None = None
    image_list: Path | None = None
    source_images: Path | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        takes = task_factory(self.name).takes
        for option in SPECIAL:
            if getattr(self, option) and option not in takes:
                raise ValueError(not_taken(option, [self.name]))

    def create(self) -> Task:
        """The task, with the data as they are now."""
        factory = task_factory(self.name)
        if factory.needs_root and self.root is None:
            raise ValueError(f"{self.name} is read from disk: name its folder with --root")
        return factory.create(self)


def not_taken(option: str, data: Sequence[str]) -> str:
    """The error for an option that none of these data sets takes."""
    takers = [name for name in TASKS if option in TASKS[name].takes]
    flag = f"--{option.replace('_', '-')}"
    return f"{flag} does not apply to {', '.join(data)}, only to: {', '.join(takers)}"
