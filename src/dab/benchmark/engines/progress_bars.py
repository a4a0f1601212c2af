"""What a grid is doing, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.progress import TaskID
from rich.text import Text

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.results.result import Result
from dab.utils.progress_bar import progress

__all__ = ["Bars"]

SHOWN = 8  # runs under way with a bar of their own


class Bars:
    """A bar for the grid, one for each run under way, and a line for each that has ended.

    Args:
        runs: all cells, each with the number of images that it is shown.
    """

    def __init__(self, runs: Sequence[tuple[Cell, int]]) -> None:
        self.progress = progress()  # where there is no terminal, there are the lines alone
        self._counts = {"done": 0, "running": 0, "failed": 0}
        self._runs = len(runs)
        self._samples = {describe(cell): samples for cell, samples in runs}
        self._images = sum(samples for _, samples in runs)  # that are to be seen
        self._grid = self.progress.add_task("", total=self._images)
        self._bars: dict[str, TaskID | None] = {}  # of the runs under way, as far as shown
        self._seen: dict[str, int] = {}
        self._count()

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def watch(self, cell: Cell, seen: int, samples: int) -> None:
        """Show how far a run is."""
        name = describe(cell)
        if name not in self._bars:
            shown = sum(bar is not None for bar in self._bars.values()) < SHOWN
            self._bars[name] = self.progress.add_task(name) if shown else None
            self._count(running=1)
        self.progress.advance(self._grid, seen - self._seen.get(name, 0))
        self._seen[name] = seen
        if (bar := self._bars[name]) is not None:
            self.progress.update(bar, completed=seen, total=samples)

    def done(self, cell: Cell, result: Result) -> None:
        """A run has a result."""
        self._end(cell)
        self._count(done=1)
        self._say(f"{describe(cell)}: error {result.error:.1f} %")

    def failed(self, cell: Cell, failure: Failure) -> None:
        """A run has ended without one."""
        self._end(cell)
        self._count(failed=1)
        self._say(f"{describe(cell)}: failed: {failure.summary}", style="red")
        if failure.details:
            self.progress.console.print(failure.details, markup=False)

    def lost(self, cell: Cell, failure: Failure) -> None:
        """A run has lost its process, and is to go on in another."""
        self._leave(describe(cell))
        line = f"{describe(cell)}: {failure.summary}; it goes on from its checkpoint"
        self._say(line, style="yellow")

    def _end(self, cell: Cell) -> None:
        """What a run has not seen is not to be seen any more: it failed, or was there already."""
        name = describe(cell)
        self._leave(name)
        self._images -= self._samples.get(name, 0) - self._seen.get(name, 0)
        self.progress.update(self._grid, total=self._images)

    def _leave(self, name: str) -> None:
        """The run is not under way."""
        if name in self._bars:
            self._count(running=-1)
            if (bar := self._bars.pop(name)) is not None:
                self.progress.remove_task(bar)

    def _count(self, **changes: int) -> None:
        for state, change in changes.items():
            self._counts[state] += change
        counts = ", ".join(f"{count} {state}" for state, count in self._counts.items())
        self.progress.update(self._grid, description=f"all runs: {counts} of {self._runs}; images")

    def _say(self, line: str, style: str = "") -> None:
        self.progress.console.print(Text(line, style), soft_wrap=True)


def describe(cell: Cell) -> str:
    """A cell in a few words.

    >>> describe(Cell("dab", {"capacity": 256}, seed=3))
    'dab capacity=256, glyphs, continual, seed 3'
    """
    options = "".join(f" {name}={value}" for name, value in cell.options.items())
    piece = "" if cell.shard is None else f", {cell.shard}"
    return f"{cell.method}{options}, {cell.data}, {cell.setting}{piece}, seed {cell.seed}"
