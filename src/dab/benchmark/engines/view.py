"""What the dispatcher reports while a grid runs."""

from __future__ import annotations

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.results.result import Result

__all__ = ["View"]


class View:
    """Ignores all events: subclass it to show or record some."""

    def watch(self, cell: Cell, seen: int, samples: int) -> None:
        """A run has seen this many of its images."""

    def done(self, cell: Cell, result: Result) -> None:
        """A run has a result."""

    def failed(self, cell: Cell, failure: Failure) -> None:
        """A run has ended without a result."""

    def lost(self, cell: Cell, failure: Failure) -> None:
        """A run has lost its process, and another will resume it."""

    def claimed(self, cell: Cell, failure: Failure) -> None:
        """A run waits for the result of another process, which is executing it."""
