"""The figures of the paper, as published."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import NamedTuple

__all__ = ["Figure", "published"]


class Figure(NamedTuple):
    """A published error in %, and who published it."""

    error: float
    source: str


def published(setting: str, method: str, capacity: int | None, data: str) -> Figure | None:
    """The figure of a cell of the paper's tables, or None if they have no such cell.

    >>> published("correlated", "dab", 4096, "imagenet_c")
    Figure(error=49.6, source='paper')
    >>> published("correlated", "dab", 4096, "glyphs")
    """
    return _figures().get((setting, method, capacity, data))


@cache
def _figures() -> dict[tuple[str, str, int | None, str], Figure]:
    text = (resources.files("dab.benchmark") / "published.csv").read_text()
    figures = {}
    for row in csv.DictReader(text.splitlines()):
        setting, method, source = row.pop("setting"), row.pop("method"), row.pop("source")
        capacity = row.pop("buffer")
        for data, error in row.items():
            cell = setting, method, int(capacity) if capacity else None, data
            figures[cell] = Figure(float(error), source)
    return figures
