"""A run as a value: everything that a process needs to know to make it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dab.benchmark.cell import Cell
from dab.benchmark.result import Result
from dab.benchmark.run import Watch, run
from dab.benchmark.task import TaskRecipe
from dab.files import Location

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A cell with the task it is for and where its images and results are kept.

    Made of plain values, so that it can be sent to another process or machine.

    Args:
        cell: what to run.
        task: on what.
        out, cache, workers, checkpoint_every: see `run`.
    """

    cell: Cell
    task: TaskRecipe
    out: Location
    cache: Path | None = None
    workers: int | None = None
    checkpoint_every: int = 200

    def run(self, watch: Watch = lambda cell, seen, samples: None) -> Result:
        """The result: read if it is there, continued if the run was begun, else run."""
        return run(
            self.cell,
            self.task.create(),
            self.out,
            cache=self.cache,
            workers=self.workers,
            checkpoint_every=self.checkpoint_every,
            watch=watch,
        )
