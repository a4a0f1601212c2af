"""What methods are compared on: one file per data set, registered by name."""

# Each registers its own.
from dab.benchmark.tasks import cifar10, cifar100, cifar_c, folder, glyphs, gtsrb, imagenet
from dab.benchmark.tasks.registry import (
    TASKS,
    TaskFactory,
    TaskRecipe,
    parse_data,
    register_task,
    task_factory,
)
from dab.benchmark.tasks.task import Clean, Shifts, Task

__all__ = [
    "TASKS",
    "Clean",
    "Shifts",
    "Task",
    "TaskFactory",
    "TaskRecipe",
    "cifar10",
    "cifar100",
    "cifar_c",
    "folder",
    "glyphs",
    "gtsrb",
    "imagenet",
    "parse_data",
    "register_task",
    "task_factory",
]
