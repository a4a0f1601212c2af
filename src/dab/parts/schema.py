"""What a part takes over from a saved state: declared by the part, checked here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Array", "Integer", "List", "Maybe", "Nested", "Number", "OneOf", "Tendency", "take"]


class Kind(Protocol):
    """A kind of value."""

    @property
    def words(self) -> str: ...

    def fits(self, value: Any) -> bool: ...


@dataclass(frozen=True)
class Integer:
    """An int in a range; far from where torch's own would overflow."""

    least: int = 0
    below: int = 2**62

    @property
    def words(self) -> str:
        return f"an integer of at least {self.least:,} and less than {self.below:,}"

    def fits(self, value: Any) -> bool:
        return type(value) is int and self.least <= value < self.below


@dataclass(frozen=True)
class Number:
    """A finite float in a range."""

    least: float = -math.inf
    most: float = math.inf

    @property
    def words(self) -> str:
        return f"a finite float{_bounds(self.least, self.most)}"

    def fits(self, value: Any) -> bool:
        return type(value) is float and math.isfinite(value) and self.least <= value <= self.most


@dataclass(frozen=True)
class OneOf:
    """One of a few plain values."""

    values: tuple[Any, ...]

    @property
    def words(self) -> str:
        return f"one of {', '.join(map(repr, self.values))}"

    def fits(self, value: Any) -> bool:
        return any(type(value) is type(known) and value == known for known in self.values)


@dataclass(frozen=True)
class Array:
    """A tensor of a shape, in which None is any size; of a dtype, or else of floats.

    >>> Array((None, 2)).fits(torch.zeros(3, 2)), Array((2,), torch.int64).fits(torch.zeros(2))
    (True, False)
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype | None = None
    least: float = -math.inf
    below: float = math.inf

    @property
    def words(self) -> str:
        numbers = "floats" if self.dtype is None else str(self.dtype).removeprefix("torch.")
        sizes = ", ".join("n" if size is None else f"{size}" for size in self.shape)
        return f"a tensor ({sizes}) of finite {numbers}{_bounds(self.least, self.below)}"

    def fits(self, value: Any) -> bool:
        if not isinstance(value, Tensor) or value.ndim != len(self.shape):
            return False
        of_dtype = value.is_floating_point() if self.dtype is None else value.dtype == self.dtype
        sizes = zip(self.shape, value.shape, strict=True)
        if not of_dtype or any(size not in (None, found) for size, found in sizes):
            return False
        if not value.numel():
            return True
        least, most = (extreme.item() for extreme in torch.aminmax(value.detach()))
        return self.least <= least and most < self.below


@dataclass(frozen=True)
class List:
    """A list of values of one kind."""

    kind: Kind

    @property
    def words(self) -> str:
        return f"a list, each of them {self.kind.words}"

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and all(map(self.kind.fits, value))


@dataclass(frozen=True)
class Maybe:
    """A value of some kind, or None."""

    kind: Kind

    @property
    def words(self) -> str:
        return f"{self.kind.words}, or None"

    def fits(self, value: Any) -> bool:
        return value is None or self.kind.fits(value)


@dataclass(frozen=True)
class Nested:
    """The state of a part of the part, which checks it itself."""

    words = "a dictionary"

    def fits(self, value: Any) -> bool:
        return isinstance(value, Mapping)


@dataclass(frozen=True)
class Tendency:
    """A condition on a field of a memory: a mean of probabilities, one for each class, or None."""

    words = "of probabilities, one for each class"

    def check(self, value: Any) -> bool:
        if not Maybe(Array((None,), least=0)).fits(value):
            return False
        return value is None or abs(value.sum(dtype=torch.float64).item() - 1) < 1e-3


def take(state: Any, /, **kinds: Kind) -> tuple[Any, ...]:
    """The entries of a part's state, in the order of their kinds; a ValueError names a wrong one.

    >>> take({"sum": 1.0, "weight": -1.0}, sum=Number(), weight=Number(least=0))
    Traceback (most recent call last):
    ValueError: weight must be a finite float of at least 0, got -1.0
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"it should have {sorted(kinds)}, but is a {type(state).__name__}")
    if state.keys() != kinds.keys():
        raise ValueError(f"it should have {sorted(kinds)}, but has {sorted(state)}")
    for name, kind in kinds.items():
        if not kind.fits(state[name]):
            raise ValueError(f"{name} must be {kind.words}, got {_shown(state[name])}")
    return tuple(state[name] for name in kinds)


def _bounds(least: float, most: float) -> str:
    bounds = (("of at least", least), ("up to", most))
    given = [f"{words} {bound:,}" for words, bound in bounds if math.isfinite(bound)]
    return "".join(f" {words}" for words in given)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of {tuple(value.shape)}"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"a {type(value).__name__}"
