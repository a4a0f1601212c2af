"""Title, order and color of each method, wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import dab
from dab.adapter import Adapter
from dab.methods.source import Source

__all__ = ["BACKGROUND", "COLORS", "WORSE", "Color", "Style", "order", "styles", "title"]


class Color(NamedTuple):
    """The same color on a light background and on a dark one."""

    light: str
    dark: str


BACKGROUND = Color("#ffffff", "#14181f")
WORSE = Color("#c4122f", "#ff7a85")  # than the source model; no method is red

# Distinguishable on both backgrounds with every kind of color vision, and with a contrast of at
# least 3:1; tests/integration/test_report.py computes both. A method declares the number of its
# color: 0 is the gray, 1 the first of `COLORS`.
SOURCE = Color("#3d4347", "#868d96")
COLORS = (
    Color("#d87d13", "#f0761f"),
    Color("#3214b8", "#b7a0f7"),
    Color("#d86cb5", "#f692c2"),
    Color("#127575", "#2f8fc2"),
    Color("#1a4d0c", "#8eee66"),
    Color("#bd75db", "#b454ec"),
    Color("#17a57b", "#14e39a"),
    Color("#9b654d", "#b5824e"),
    Color("#0a48f0", "#9cc7ff"),
    Color("#616a0c", "#d2e309"),
)


@dataclass(frozen=True)
class Style:
    """How a method is named and drawn."""

    title: str
    light: str
    dark: str
    shape: int  # number of its marker


def title(method: str) -> str:
    """The method's name as papers print it; the plain name if the method is not installed.

    >>> title("dab"), title("mine")
    ('DAB', 'mine')
    """
    found = _class(method)
    return method if found is None else found.title


def order(method: str) -> tuple[int, str]:
    """Sorts methods by year: the source model first, methods without a year last.

    >>> sorted(["mine", "dab", "tent", "source"], key=order)
    ['source', 'tent', 'dab', 'mine']
    """
    found = _class(method)
    if found is Source:
        return 0, method
    return (found and found.year) or 9999, method


def styles(methods: Iterable[str]) -> dict[str, Style]:
    """A style for each of these methods, in order.

    A method that declares a color has it in every report, and no new method changes that. Other
    methods get free colors, and repeat them if there are more methods than colors.

    >>> styles(["dab", "tent"])["dab"] == styles(["dab", "mine"])["dab"]
    True
    """
    shown = sorted(set(methods), key=order)
    numbers: dict[str, int] = {}
    for name in shown:
        declared = vars(_class(name) or Adapter).get("color")  # not that of a base class
        if declared is not None and declared not in numbers.values():
            numbers[name] = declared
    free = (number for number in count(1) if number not in numbers.values())
    numbers |= zip([name for name in shown if name not in numbers], free, strict=False)
    return {name: Style(title(name), *_color(numbers[name]), numbers[name]) for name in shown}


def _color(number: int) -> Color:
    return COLORS[(number - 1) % len(COLORS)] if number else SOURCE


def _class(method: str) -> type[Adapter] | None:
    return dab.method(method) if method in dab.methods() else None
