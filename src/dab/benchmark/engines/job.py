"""A run as a value: everything that a process needs to know to make it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.results.result import Result
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.loggers import create_logger
from dab.benchmark.running.run import Watch, identity_card, run
from dab.benchmark.tasks.task import Task, TaskRecipe
from dab.streams import Stream
from dab.utils.files import Location
from dab.utils.imports import import_own

__all__ = ["Job", "work"]


@dataclass(frozen=True)
class Job:
    """A cell with the task it is for and where its images and results are kept.

    Made of plain values, so that it can be sent to another process or machine.

    Args:
        cell: what to run.
        task: on what.
        out, cache, workers, checkpoint_every: see `run`.
        imports: modules and files with methods of users' own.
        log: names of loggers; see `dab.benchmark.running.loggers`.
    """

    cell: Cell
    task: TaskRecipe
    out: Location
    cache: Path | None = None
    workers: int | None = None
    checkpoint_every: int = 200
    imports: tuple[str, ...] = ()
    log: tuple[str, ...] = ()

    def run(self, watch: Watch = lambda cell, seen, samples: None) -> Result:
        """The result: read if it is there, continued if the run was begun, else run."""
        return run(
            self.cell,
            _task(self.task),
            self.out,
            cache=self.cache,
            workers=self.workers,
            checkpoint_every=self.checkpoint_every,
            watch=watch,
            loggers=[create_logger(name, self.out) for name in self.log],
        )

    @property
    def stream_key(self) -> str:
        """What all jobs of a stream have in common, and no others."""
        return repr((self.cell.source(), self.task))

    def stream(self) -> Stream:
        """What the cell's method is shown."""
        return stream_of(self.cell, _task(self.task), self.cache)

    def folder(self, stream: Stream, source_error: float | None) -> Location:
        """Where the result is or will be."""
        return self.out / identity_card(self.cell, _task(self.task), stream, source_error).run_id


@cache
def _task(recipe: TaskRecipe) -> Task:
    """One for all runs of a process, which share its data; they do not change under way."""
    return recipe.create()


def work(job: Job) -> Failure | None:
    """Run a job in a process that knows nothing yet; its result is in the storage.

    An interrupt goes through, once the run has left its checkpoint.
    """
    try:
        for module in job.imports:
            _imported(module)
        job.run()
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return None


@cache
def _imported(module: str) -> ModuleType:
    return import_own(module)
