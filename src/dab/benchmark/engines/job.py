"""A run as a value: everything that a process needs to make it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

from torch import nn

from dab.benchmark.cell import Cell
from dab.benchmark.engines.failure import Failure
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.loggers import create_logger
from dab.benchmark.running.run import ClaimedError, Watch, identity_card, run
from dab.benchmark.tasks.registry import TaskRecipe
from dab.benchmark.tasks.task import Task
from dab.registry import asks_for, create
from dab.streams import Stream
from dab.utils import allocator
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
        source_error: see `run`; the dispatcher fills it in when the source run has ended.
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
    source_error: float | None = None

    def run(self, watch: Watch = lambda cell, seen, samples: None) -> Result:
        """The result: read if it exists, resumed from a checkpoint, or else run."""
        return run(
            self.cell,
            _task(self.task),
            self.out,
            source_error=self.source_error,
            cache=self.cache,
            workers=self.workers,
            checkpoint_every=self.checkpoint_every,
            watch=watch,
            loggers=[create_logger(name, self.out) for name in self.log],
        )

    @property
    def stream_key(self) -> str:
        """The same for all jobs on a stream, and for no others."""
        return repr((self.cell.source(), self.task))

    def stream(self) -> Stream:
        """The stream that the cell's method sees."""
        return stream_of(self.cell, _task(self.task), self.cache)

    def model(self) -> nn.Module:
        """The source model in the run's precision, on the CPU."""
        compute = replace(self.cell.compute, device="cpu", compile=False)
        return compute.prepare(_task(self.task).model())

    def try_on(self, model: nn.Module) -> None:
        """Create the method on a copy of a model, with one source image if it asks for some."""
        source_images, given = _task(self.task).source_images, {}
        if source_images is not None and asks_for(self.cell.method, "source_images"):
            given["source_images"] = source_images()[:1]
        create(self.cell.method, deepcopy(model), **given, **self.cell.options)

    def card(self, stream: Stream) -> RunCard:
        """The identity of the run."""
        return identity_card(self.cell, _task(self.task), stream, self.source_error)


@cache
def _task(recipe: TaskRecipe) -> Task:
    """One for all runs of a process, which share its data."""
    return recipe.create()


def outcome(job: Job, watch: Watch = lambda cell, seen, samples: None) -> Failure | None:
    """Run a job; its result is in the storage. Why it failed, or None.

    An interrupt passes through, once the run has saved its checkpoint.
    """
    try:
        job.run(watch)
    except ClaimedError as error:
        return Failure(str(error), claimed=True)
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return None


def work(job: Job) -> Failure | None:
    """The outcome of a job in a process of its own, which has imported nothing yet."""
    allocator.keep_freed()
    try:
        for module in job.imports:
            _imported(module)
    except (Exception, SystemExit) as error:
        return Failure.of(error)
    return outcome(job)


@cache
def _imported(module: str) -> ModuleType:
    return import_own(module)
