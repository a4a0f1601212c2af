"""Title, order and color of each method, wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, cycle
from typing import NamedTuple

import dab
from dab.adapter import Adapter
from dab.methods.source import Source

__all__ = ["BACKGROUND", "WORSE", "Color", "Style", "order", "styles", "title"]


class Color(NamedTuple):
    """The same color on a light background and on a dark one."""

    light: str
    dark: str


BACKGROUND = Color("#ffffff", "#14181f")
WORSE = Color("#c4122f", "#ff7a85")  # than the source model; no method is red

# Distinguishable on both backgrounds with every kind of color vision, and with a contrast of at
# least 3:1; tests/integration/test_report.py computes both.
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
    """The method's name as papers print it; of a method that is not installed, its plain name.

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

    A built-in method has the same color in every report, unless more are shown than there are
    colors apart from its own. Other methods get colors that are free.

    >>> styles(["dab", "tent"])["dab"] == styles(["dab", "mine"])["dab"]
    True
    """
    shown = sorted(set(methods), key=order)
    known = sorted(filter(_is_built_in, dab.methods()), key=order)
    shapes = {name: place for place, name in enumerate(dict.fromkeys([*known, *shown]))}
    chosen: dict[str, Color] = {}
    for name, color in zip(known, chain([SOURCE], cycle(COLORS)), strict=False):
        if name in shown and color not in chosen.values():
            chosen[name] = color
    free = [color for color in COLORS if color not in chosen.values()]
    others = (name for name in shown if name not in chosen)
    chosen |= dict(zip(others, cycle(free or COLORS), strict=False))
    return {name: Style(title(name), *chosen[name], shapes[name]) for name in shown}


def _class(method: str) -> type[Adapter] | None:
    return dab.method(method) if method in dab.methods() else None


def _is_built_in(method: str) -> bool:
    return dab.method(method).__module__.startswith("dab.")
