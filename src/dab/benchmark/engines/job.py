"""A run as a value: everything that a process needs to make it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.loggers import create_logger
from dab.benchmark.running.run import ClaimedError, Watch, identity_card, run
from dab.benchmark.tasks.registry import TaskRecipe
from dab.benchmark.tasks.task import Task
from dab.streams import Stream
from dab.utils.files import Location
from dab.utils.imports import import_own

__all__ = ["Job", "outcome", "work"]


@dataclass(frozen=True)
class Job:
    """A cell with its task and the places of its images and results.

    Made of plain values, so that it can be sent to another process or machine.

    Args:
        cell: what to run.
        task: how to make its task.
        out, cache, workers, checkpoint_every: see `run`.
        imports: modules and files that register methods and data sets.
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

    def run(self, watch: Watch = lambda cell, seen, samples: None, *, wait: bool = True) -> Result:
        """The result: read if it exists, resumed from a checkpoint, or else run."""
        return run(
            self.cell,
            _task(self.task),
            self.out,
            cache=self.cache,
            workers=self.workers,
            checkpoint_every=self.checkpoint_every,
            watch=watch,
            loggers=[create_logger(name, self.out) for name in self.log],
            wait=wait,
        )

    @property
    def stream_key(self) -> str:
        """The same for all jobs on a stream, and for no others."""
        return repr((self.cell.source(), self.task))

    def stream(self) -> Stream:
        """The stream that the cell's method sees."""
        return stream_of(self.cell, _task(self.task), self.cache)

    def card(self, stream: Stream, source_error: float | None) -> RunCard:
        """The identity of the run."""
        return identity_card(self.cell, _task(self.task), stream, source_error)


@cache
def _task(recipe: TaskRecipe) -> Task:
    """One for all runs of a process, which share its data."""
    return recipe.create()


def outcome(job: Job, watch: Watch = lambda cell, seen, samples: None) -> Failure | None:
    """Run a job; its result is in the storage. Why it failed, or None.

    An interrupt passes through, once the run has saved its checkpoint.
    """
    try:
        job.run(watch, wait=False)
    except ClaimedError as error:
        return Failure(str(error), claimed=True)
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return None


def work(job: Job) -> Failure | None:
    """The outcome of a job in a process that has imported nothing yet."""
    try:
        for module in job.imports:
            _imported(module)
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return outcome(job)


@cache
def _imported(module: str) -> ModuleType:
    return import_own(module)
