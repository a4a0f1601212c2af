"""Tasks by name. A data set registers a factory, which also states what the data set needs."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torch import nn

from dab.benchmark.tasks.task import Clean, Task
from dab.data.corruptions import CORRUPTIONS
from dab.data.images import to_tensor
from dab.streams import Setting
from dab.utils.registry import Registry
from dab.utils.suggest import unknown
from dab.utils.text import summary

if TYPE_CHECKING:
    from dab.benchmark.cell import Cell
    from dab.data.datasets.imagenet import DataSet

__all__ = ["TASKS", "TaskFactory", "TaskRecipe", "parse_data", "register_task", "task_factory"]

# Fields of a recipe that only some data sets have a use for.
SPECIAL = ("root", "source_images", "partial")


class TaskFactory(ABC):
    """Makes the tasks of one data set. The first line of the docstring describes the data.

    The command line, its help and its checks follow from the class attributes.
    """

    name: ClassVar[str]  # set by `register_task`
    images: ClassVar[int | None] = None  # per domain; None if the folder decides
    classes: ClassVar[int | None] = None  # None if the folder decides
    default_model: ClassVar[str] = ""  # used unless a recipe names another
    default_tag: ClassVar[str] = ""  # names the weights that its library has for it
    takes: ClassVar[Sequence[str]] = ()  # what a recipe may name: "root", "partial", ...
    options: ClassVar[Mapping[str, Callable[[str], Any]]] = {}  # its own, with what reads the text
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
        return per_domain * cell.setting.showings(len(cell.corruptions), cell.severity)

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
            choice: of data with corruptions: `images`, `corruptions` and `severities`.
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
        source_images: folder with training images of the model, for methods that ask for some.
        partial: accept an incomplete data set.
        options: that only this data set has; see `TaskFactory.options`.

    >>> TaskRecipe("cifra10")
    Traceback (most recent call last):
    ValueError: unknown data 'cifra10'; did you mean 'cifar10'? available: cifar10, ...
    """

    name: str
    samples: int | None = None
    root: Path | None = None
    model: str | None = None
    source_images: Path | None = None
    partial: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        factory = task_factory(self.name)
        for option in SPECIAL:
            if getattr(self, option) and option not in factory.takes:
                raise ValueError(not_taken(option, [self.name]))
        for option in self.options:
            if option not in factory.options:
                raise ValueError(unknown(f"{self.name} option", option, factory.options))

    def create(self) -> Task:
        """The task, with the data as they are now."""
        factory = task_factory(self.name)
        if factory.needs_root and self.root is None:
            raise ValueError(f"{self.name} is read from disk: name its folder with --root")
        return factory.create(self)


def parse_data(text: str) -> tuple[str, dict[str, Any]]:
    """The name of a data set, and the values of its own options.

    >>> parse_data("imagenet-c image_list=/data/names.txt")
    ('imagenet-c', {'image_list': PosixPath('/data/names.txt')})
    """
    name, *words = shlex.split(text) or [""]
    readers, values = task_factory(name).options, {}
    for word in words:
        option, equals, value = word.partition("=")
        if not (equals and value):
            raise ValueError(f"write an option of {name} as NAME=VALUE, got {word!r}")
        if option not in readers:
            raise ValueError(unknown(f"{name} option", option, readers))
        values[option] = readers[option](value)
    return name, values


def not_taken(option: str, data: Sequence[str]) -> str:
    """The error for an option that none of these data sets takes."""
    takers = [name for name in TASKS if option in TASKS[name].takes]
    flag = f"--{option.replace('_', '-')}"
    return f"{flag} does not apply to {', '.join(data)}, only to: {', '.join(takers)}"
