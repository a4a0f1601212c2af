"""The published numbers, and which runs may be compared with them."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import dab
from dab.benchmark.cell import Cell, changed_options
from dab.data.corruptions import CORRUPTIONS
from dab.registry import asks_for

if TYPE_CHECKING:
    from dab.benchmark.results.result import Result
    from dab.benchmark.tasks.task import Task

__all__ = ["CIFAR10_C", "PROTOCOLS", "STAR", "Protocol", "Published", "column", "published"]
__all__ += ["source_mismatch"]

STAR = "*: not in the paper, from its authors' benchmark."

TOLERANCE = 1.0  # points between a source model's error and the published one


class Protocol(NamedTuple):
    """How a column of the published tables was made, apart from the model and the images."""

    batch_size: int = 64
    options: Mapping[str, Mapping[str, Any]] = {}  # of methods, where they are not our defaults


_ADAM = {"optimizer": "adam", "lr": 1e-3}

# SAR, RoTTA and AdaContrast run with the settings of their papers, which are our defaults. For SAR,
# the authors' configuration names Adam, but their code always takes SGD.
CIFAR10_C = Protocol(
    batch_size=200,
    options={
        "tent": _ADAM,
        "eata": {**_ADAM, "fisher_weight": 1.0, "margin": 0.4, "batch_size": 200},
        "cotta": {**_ADAM, "restore": 0.01, "gate": 0.92, "symmetric": False},
        "lame": {"affinity": "rbf"},
        "roid": _ADAM,
    },
)

IMAGENET_C = Protocol(options={"lame": {"affinity": "rbf"}})

# The images of ImageNet-C are cropped already, so AdaContrast crops only those of the others.
LARGER = Protocol(options={**IMAGENET_C.options, "adacontrast": {"crop": True}})

PROTOCOLS = {
    "imagenet_c": IMAGENET_C,
    "imagenet_r": LARGER,
    "imagenet_sketch": LARGER,
    "imagenet_d109": LARGER,
    "cifar10_c": CIFAR10_C,
}


class Published(NamedTuple):
    """A published error in %, and who published it."""

    error: float
    source: str

    @property
    def starred(self) -> bool:
        """Whether a table marks it with a star, which `STAR` explains."""
        return self.source != "paper"

    def __str__(self) -> str:
        return f"{self.error:.1f}{'*' if self.starred else ''}"


def published(
    setting: str, method: str, capacity: int | None, column: str | None
) -> Published | None:
    """The published error of a cell, or None if the tables have no such cell.

    >>> published("correlated", "dab", 4096, "imagenet_c")
    Published(error=49.6, source='paper')
    >>> published("correlated", "dab", 4096, None)
    """
    return None if column is None else _numbers().get((setting, method, capacity, column))


def column(cell: Cell, task: Task) -> str | None:
    """The column of the published tables that a run belongs to, if it is made as they were."""
    protocol = PROTOCOLS.get(task.published_as or "")
    if protocol is None:
        return None
    stream = tuple(cell.corruptions), cell.severity, cell.batch_size, cell.shard
    if stream != (CORRUPTIONS, 5, protocol.batch_size, None):
        return None
    options = changed_options(cell.method, protocol.options.get(cell.method, {}))
    return task.published_as if _is_the_published_method(cell, task, options) else None


def _is_the_published_method(cell: Cell, task: Task, options: Mapping[str, Any]) -> bool:
    """Whether all is as published but the buffer's size, and what the method asks for is there."""
    changed = cell.changed_options()
    capacity = changed.pop("capacity", None)
    for option in dab.method(cell.method).scales_with_capacity:
        if changed.get(option) == capacity:
            changed.pop(option, None)  # the tables vary the buffer's size alone
    lacks_images = asks_for(cell.method, "source_images") and task.source_images is None
    return changed == options and not lacks_images


def source_mismatch(result: Result) -> str | None:
    """A warning if the source model's error is not the published one, else None."""
    card = result.card
    if not card.is_source or card.published_as is None:
        return None
    expected = published(card.setting, card.method, None, card.published_as)
    if expected is None or abs(result.error - expected.error) <= TOLERANCE:
        return None
    return (
        f"the source model's error on {card.data.name} is {result.error:.1f} %, the published "
        f"error is {expected.error:.1f} %: do not trust numbers made with this model or data. The "
        "usual causes: another network of the same name (timm's vit_base_patch16_224 has 48.9 % on "
        "ImageNet-C); another mean, standard deviation or resize than the weights were trained "
        "with (6 to 20 points); images that were resized twice, or saved again; classes in "
        "another order. `dab data check` checks the images."
    )


@cache
def _numbers() -> dict[tuple[str, str, int | None, str], Published]:
    text = (resources.files("dab.benchmark.results") / "published.csv").read_text()
    numbers = {}
    for row in csv.DictReader(text.splitlines()):
        setting, method, source = row.pop("setting"), row.pop("method"), row.pop("source")
        capacity = row.pop("buffer")
        for data, error in row.items():
            cell = setting, method, int(capacity) if capacity else None, data
            if error:
                numbers[cell] = Published(float(error), source)
    return numbers
