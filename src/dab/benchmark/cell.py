"""A cell of a table: one method on one stream."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import dab
from dab.benchmark.compute import Compute
from dab.data.corruptions import CORRUPTIONS
from dab.streams import Setting, Shard

__all__ = ["Cell", "parse_method"]

CONTINUAL, CPU = Setting(), Compute()

# What a run gives a method by itself, where the method asks for it.
GIVEN = ("model", "seed", "source_images")


@dataclass(frozen=True)
class Cell:
    """One method with its options on one stream, and what it is computed on.

    >>> cell = Cell("dab", {"capacity": 256}, setting=Setting.parse("correlated"))
    >>> cell.all_options()["capacity"], cell.all_options()["ensemble"]
    (256, 0.99)
    >>> Cell("dab", {"capactiy": 256})
    Traceback (most recent call last):
    ValueError: dab has no option 'capactiy'; it has: capacity, batch_size, ...
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "glyphs"
    setting: Setting = CONTINUAL
    seed: int = 0
    batch_size: int = 64
    corruptions: Sequence[str] = CORRUPTIONS
    severity: int = 5
    compute: Compute = CPU
    shard: Shard | None = None

    def __post_init__(self) -> None:
        known = self._defaults()
        for option in self.options:
            if option not in known:
                raise ValueError(
                    f"{self.method} has no option {option!r}; it has: {', '.join(known)}"
                )
        for corruption in self.corruptions:
            if list(self.corruptions).count(corruption) > 1:  # errors go by its name
                raise ValueError(f"corruption {corruption!r} is named more than once")

    def all_options(self) -> dict[str, Any]:
        """The method's options: those of this cell, and the defaults of all others."""
        defaults = self._defaults()
        # 1 is the same learning rate as 1.0, and has to have the same name.
        numbers = {
            name: float(value)
            for name, value in self.options.items()
            if isinstance(defaults[name], float) and type(value) is int
        }
        return {**defaults, **self.options, **numbers}

    def changed_options(self) -> dict[str, Any]:
        """Those of this cell that are not the defaults."""
        defaults = self._defaults()
        return {k: v for k, v in self.all_options().items() if v != defaults[k]}

    def _defaults(self) -> dict[str, Any]:
        parameters = inspect.signature(dab.method(self.method)).parameters.values()
        return {option.name: option.default for option in parameters if option.name not in GIVEN}

    @property
    def is_source(self) -> bool:
        """Whether this is what all others are compared with."""
        return self.method == "source" and not self.changed_options()

    def source(self) -> Cell:
        """The cell of the source model on the same stream."""
        return replace(self, method="source", options={})


def parse_method(text: str) -> list[tuple[str, dict[str, Any]]]:
    """A method with its options, and one for each combination where an option has several values.

    >>> parse_method("dab capacity=64,256 lr=1e-3")
    [('dab', {'capacity': 64, 'lr': 0.001}), ('dab', {'capacity': 256, 'lr': 0.001})]
    """
    name, *settings = text.split() or [""]
    choices = {}
    for setting in settings:
        option, equals, values = setting.partition("=")
        if not (equals and values):
            raise ValueError(f"an option is written NAME=VALUE, got {setting!r}")
        if option in choices:
            raise ValueError(f"option {option!r} is given twice")
        choices[option] = [_value(value) for value in values.split(",")]
    return [
        (name, dict(zip(choices, values, strict=True))) for values in product(*choices.values())
    ]


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text  # a word
