"""A cell of a table: one method on one stream."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import dab
from dab.benchmark.compute import Compute
from dab.data.corruptions import CORRUPTIONS
from dab.parts.options import check_options
from dab.streams import Setting, Shard
from dab.utils.suggest import unknown
from dab.utils.text import assignments, parse_options

__all__ = ["Cell", "Method", "changed_options", "parse_method"]

CORRELATED, CPU = Setting(correlated=True), Compute()

# Arguments of a method that a run provides itself.
GIVEN = ("model", "seed", "source_images")


class Method(NamedTuple):
    """A method by name, with the options that are not its defaults.

    >>> Method("dab", {"capacity": 256})
    Method(name='dab', options={'capacity': 256})
    """

    name: str
    options: Mapping[str, Any] = {}  # never changed

    @classmethod
    def each(cls, name: str, **options: Sequence[Any]) -> list[Method]:
        """One for each combination of the options' values.

        >>> [method.options["capacity"] for method in Method.each("dab", capacity=[64, 256])]
        [64, 256]
        """
        combinations = product(*options.values())
        return [cls(name, dict(zip(options, values, strict=True))) for values in combinations]

    def __str__(self) -> str:
        return " ".join([self.name, *assignments(self.options)])


@dataclass(frozen=True)
class Cell:
    """One method with its options on one stream, and the compute it runs on.

    >>> cell = Cell("dab", {"capacity": 256})
    >>> cell.all_options()["capacity"], cell.all_options()["ensemble"]
    (256, 0.99)
    >>> Cell("dab", {"capactiy": 256})
    Traceback (most recent call last):
    ValueError: unknown dab option 'capactiy'; did you mean 'capacity'? available: capacity, ...
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "glyphs"
    setting: Setting = CORRELATED
    seed: int = 0
    batch_size: int = 64
    corruptions: Sequence[str] = CORRUPTIONS
    severity: int = 5
    compute: Compute = CPU
    shard: Shard | None = None

    def __post_init__(self) -> None:
        _check(self.method, self.options)
        for corruption in self.corruptions:
            if list(self.corruptions).count(corruption) > 1:  # errors are reported by its name
                raise ValueError(f"corruption {corruption!r} is named more than once")

    def all_options(self) -> dict[str, Any]:
        """The method's options: those of this cell, and the defaults of all others."""
        defaults = _defaults(self.method)
        # 1 is the same learning rate as 1.0, so both need the same identity.
        numbers = {
            name: float(value)
            for name, value in self.options.items()
            if isinstance(defaults[name], float) and type(value) is int
        }
        return {**defaults, **self.options, **numbers}

    def changed_options(self) -> dict[str, Any]:
        """The options that differ from the method's defaults."""
        return changed_options(self.method, self.all_options())

    @property
    def forwards(self) -> float:
        """Approximate cost per image, in plain forward passes.

        >>> Cell("tent").forwards
        2.2
        """
        return dab.method(self.method).forwards

    @property
    def is_source(self) -> bool:
        """Whether this is the run that all others are compared with."""
        return self.method == "source" and not self.changed_options()

    def source(self) -> Cell:
        """The cell of the source model on the same stream."""
        return replace(self, method="source", options={})

    def __str__(self) -> str:
        """The cell in a few words.

        >>> str(Cell("dab", {"capacity": 256}, seed=3))
        'dab capacity=256, glyphs, correlated, seed 3'
        """
        piece = "" if self.shard is None else f", {self.shard}"
        method = Method(self.method, self.options)
        return f"{method}, {self.data}, {self.setting}{piece}, seed {self.seed}"


def changed_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that differ from the method's defaults; all if the method is not registered.

    >>> changed_options("dab", {"capacity": 64, "ensemble": 0.99})
    {'capacity': 64}
    """
    defaults = _defaults(method) if method in dab.methods() else {}
    return {k: v for k, v in options.items() if k not in defaults or v != defaults[k]}


def _defaults(method: str) -> dict[str, Any]:
    parameters = inspect.signature(dab.method(method)).parameters.values()
    return {option.name: option.default for option in parameters if option.name not in GIVEN}


def _check(method: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a method does not have, and values that it would not accept."""
    known = _defaults(method)
    for name in options:
        if name not in known:
            raise ValueError(unknown(f"{method} option", name, known))
    try:
        check_options(dab.method(method), options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{error} (in {str(Method(method, options))!r})") from error


def parse_method(text: str) -> list[Method]:
    """A method with its options; several values of an option make one for each combination.

    >>> parse_method("dab capacity=64,256 lr=1e-3")[0]
    Method(name='dab', options={'capacity': 64, 'lr': 0.001})
    """
    name, choices = parse_options(text)
    return Method.each(name, **choices)
