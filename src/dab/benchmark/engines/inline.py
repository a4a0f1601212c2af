"""One run after the other, in this process."""

from __future__ import annotations

from collections.abc import Sequence

from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.engines.progress_bars import Bars
from dab.benchmark.results.result import Result

__all__ = ["run_here"]


def run_here(jobs: Sequence[Job], view: Bars) -> list[Result]:
    """The results that there are in the end, in the order of the jobs."""
    results: list[Result] = []
    failed: set[str] = set()  # streams whose source run has
    for job in jobs:
        outcome = Failure.of_source() if job.stream_key in failed else _outcome(job, view)
        if isinstance(outcome, Result):
            results.append(outcome)
            view.done(job.cell, outcome)
        else:
            view.failed(job.cell, outcome)
            if job.cell.is_source:
                failed.add(job.stream_key)
    return results


def _outcome(job: Job, view: Bars) -> Result | Failure:
    try:
        return job.run(view.watch)
    except (Exception, SystemExit) as error:  # the other cells are none the worse for it
        return Failure.of(error)
