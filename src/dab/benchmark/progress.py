"""What a grid is doing, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import format_exception
from types import TracebackType

from rich.text import Text

from dab.benchmark.cell import Cell
from dab.benchmark.published import suspicion
from dab.benchmark.result import Result
from dab.progress import progress

__all__ = ["Bars"]


class Bars:
    """A bar for the grid, one for the run under way, and a line for each that has ended."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.progress = progress()  # where there is no terminal, there are the lines alone
        self.grid = self.progress.add_task("all runs", total=len(cells))
        self.current = self.progress.add_task("", visible=False)
        self._shown: Cell | None = None

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
        if cell is not self._shown:
            self._shown = cell
            self.progress.reset(self.current, description=describe(cell), visible=True)
        self.progress.update(self.current, completed=seen, total=samples)

    def done(self, cell: Cell, result: Result) -> None:
        """A run has a result, which may be a reason not to go on."""
        self._end(f"{describe(cell)}: error {result.error:.1f} %")
        if doubt := suspicion(result):
            self.progress.console.print(Text(f"WARNING: {doubt}", "bold red"), soft_wrap=True)

    def failed(self, cell: Cell, error: Exception) -> None:
        """A run has ended without one; unless the error speaks for itself, say where it was."""
        self._end(f"{describe(cell)}: failed: {type(error).__name__}: {error}", style="red")
        if not isinstance(error, ValueError | OSError):
            self.progress.console.print("".join(format_exception(error)), markup=False)

    def _end(self, line: str, style: str = "") -> None:
        self.progress.update(self.current, visible=False)
        self._shown = None
        self.progress.advance(self.grid)
        self.progress.console.print(Text(line, style), soft_wrap=True)


def describe(cell: Cell) -> str:
    """A cell in a few words.

    >>> describe(Cell("dab", {"capacity": 256}, seed=3))
    'dab capacity=256, glyphs, continual, seed 3'
    """
    options = "".join(f" {name}={value}" for name, value in cell.options.items())
    return f"{cell.method}{options}, {cell.data}, {cell.setting}, seed {cell.seed}"
