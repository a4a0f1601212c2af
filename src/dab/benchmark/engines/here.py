"""One run after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from dab.benchmark.failure import Failure
from dab.benchmark.job import Job
from dab.benchmark.progress import Bars
from dab.benchmark.result import Result

__all__ = ["run_here"]


def run_here(jobs: Sequence[Job], view: Bars) -> list[Result]:
    """The results that there are in the end, in the order of the jobs."""
    return [result for job in jobs if (result := _attempt(job, view)) is not None]


def _attempt(job: Job, view: Bars) -> Result | None:
    try:
        result = job.run(view.watch)
    except Exception as error:  # the other cells are none the worse for it
        view.failed(job.cell, Failure.of(error))
        return None
    view.done(job.cell, result)
    return result
