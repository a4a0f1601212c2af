"""Errors of data sets: all problems in one message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["DataError", "Problems"]

SHOWN = 5  # examples of each kind


class DataError(ValueError):
    """A data set on disk is incomplete or not what was expected."""


class Problems:
    """Collects problems by kind.

    >>> problems = Problems()
    >>> problems.add("missing folders", ["fog/5", "snow/5"])
    >>> problems.add("empty files", [])
    >>> problems.report("imagenet-c in data")
    Traceback (most recent call last):
    dab.data.errors.DataError: imagenet-c in data:
      2 missing folders: fog/5, snow/5
    """

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, kind: str, culprits: Iterable[str]) -> None:
        """Records the culprits of a kind of problem. Does nothing if there are none."""
        if found := list(culprits):
            self._found.setdefault(kind, []).extend(found)

    def report(self, what: str) -> None:
        """Raises a `DataError` with one line per kind of problem, if there are any."""
        if self._found:
            lines = [f"{len(of):,} {kind}: {shortened(of)}" for kind, of in self._found.items()]
            raise DataError("\n  ".join([f"{what}:", *lines]))


def shortened(culprits: Sequence[str]) -> str:
    """Lists the first few, and the number of the others."""
    more = len(culprits) - SHOWN
    return ", ".join(culprits[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
