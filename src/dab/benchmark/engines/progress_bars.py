"""Progress bars of a grid, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.progress import TaskID
from rich.text import Text

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.view import View
from dab.benchmark.results.result import Result
from dab.utils.progress_bar import progress

__all__ = ["Bars"]

SHOWN = 8  # active runs with a bar of their own


class Bars(View):
    """A bar for the grid, one for each active run, and a line for each that has ended.

    Without a terminal, only the lines.

    Args:
        runs: all cells, each with the number of images in its stream.
    """

    def __init__(self, runs: Sequence[tuple[Cell, int]]) -> None:
        self.progress = progress()
        self._counts = {"done": 0, "running": 0, "failed": 0}
        self._runs = len(runs)
        self._samples = {str(cell): samples for cell, samples in runs}
        self._images = sum(samples for _, samples in runs)  # still expected or seen
        self._grid = self.progress.add_task("", total=self._images)
        self._bars: dict[str, TaskID | None] = {}  # of the active runs, as far as shown
        self._seen: dict[str, int] = {}
        self._count()

    def __enter__(self) -> Bars:
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def watch(self, cell: Cell, seen: int, samples: int) -> None:
        name = str(cell)
        if name not in self._bars:
            shown = sum(bar is not None for bar in self._bars.values()) < SHOWN
            self._bars[name] = self.progress.add_task(name) if shown else None
            self._count(running=1)
        self.progress.advance(self._grid, seen - self._seen.get(name, 0))
        self._seen[name] = seen
        if (bar := self._bars[name]) is not None:
            self.progress.update(bar, completed=seen, total=samples)

    def done(self, cell: Cell, result: Result) -> None:
        self._end(cell)
        self._count(done=1)
        self._say(f"{cell!s}: error {result.error:.1f} %")

    def failed(self, cell: Cell, failure: Failure) -> None:
        self._end(cell)
        self._count(failed=1)
        self._say(f"{cell!s}: failed: {failure.summary}", style="red")
        if failure.details:
            self.progress.console.print(failure.details, markup=False)

    def lost(self, cell: Cell, failure: Failure) -> None:
        self._leave(str(cell))
        line = f"{cell!s}: {failure.summary}; resuming from its checkpoint"
        self._say(line, style="yellow")

    def claimed(self, cell: Cell, failure: Failure) -> None:
        self._leave(str(cell))
        self._say(f"{cell}: {failure.summary}; waiting for its result", style="yellow")

    def _end(self, cell: Cell) -> None:
        """Expect no more images of a run: it failed, or its result existed already."""
        name = str(cell)
        self._leave(name)
        self._images -= self._samples.get(name, 0) - self._seen.get(name, 0)
        self.progress.update(self._grid, total=self._images)

    def _leave(self, name: str) -> None:
        """The run is no longer active."""
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
