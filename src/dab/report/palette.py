"""One color for each method, wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["BACKGROUND", "WORSE", "Color", "colors", "rank"]


class Color(NamedTuple):
    """The same color on a light ground and on a dark one."""

    light: str
    dark: str


BACKGROUND = Color("#ffffff", "#14181f")
WORSE = Color("#c4122f", "#ff7a85")  # than the source model; no method is red

# Told apart on both grounds also by those who see no red, green or blue, and 3:1 to the ground:
# tests/test_report.py computes it.
_METHODS = {
    "source": Color("#3d4347", "#868d96"),
    "tent": Color("#d87d13", "#f0761f"),
    "eata": Color("#127575", "#2f8fc2"),
    "sar": Color("#9b654d", "#b5824e"),
    "cotta": Color("#d86cb5", "#f692c2"),
    "adacontrast": Color("#3214b8", "#b7a0f7"),
    "rotta": Color("#17a57b", "#14e39a"),
    "note": Color("#bd75db", "#b454ec"),
    "dab": Color("#0a48f0", "#9cc7ff"),
    "roid": Color("#616a0c", "#d2e309"),
    "lame": Color("#1a4d0c", "#8eee66"),
}


def rank(method: str) -> tuple[int, str]:
    """Where a method stands in tables and legends: the source first, those not built in last.

    >>> sorted(["mine", "dab", "source"], key=rank)
    ['source', 'dab', 'mine']
    """
    known = list(_METHODS)
    return (known.index(method) if method in known else len(known), method)


def colors(methods: Iterable[str]) -> dict[str, Color]:
    """The color of each method; one that is not built in gets that of one that is not there.

    >>> colors(["dab", "mine"])["mine"] == colors(["source"])["source"]
    False
    """
    named = sorted(set(methods))
    # The source's gray says "no method", so it is not lent.
    free = [name for name in _METHODS if name not in named and name != "source"]
    others = [name for name in named if name not in _METHODS]
    lent = free or [name for name in _METHODS if name != "source"]
    return {
        name: _METHODS[name] if name in _METHODS else _METHODS[lent[others.index(name) % len(lent)]]
        for name in named
    }
