"""Jobs on an engine: what may start when, what to retry, and the outcome of each."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from dab.benchmark.engines.engine import Engine, Runs
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.engines.view import View
from dab.benchmark.results.result import Result
from dab.benchmark.running import claims
from dab.benchmark.running.interrupts import Interrupts
from dab.benchmark.running.progress_file import Progress
from dab.benchmark.running.run import Interrupted, read_result
from dab.streams import Stream
from dab.utils import files
from dab.utils.files import Location

__all__ = ["dispatch"]

TICK = 0.05  # seconds between two questions whether a run has ended
LOOK = 1.0  # seconds between two looks at the progress of runs
LOOKS = 20  # runs per look: thousands would be too much for a storage
LATE = 10.0  # seconds that a result may take to become visible
RETRY = 1.0  # seconds between two looks at a run that another process is executing
LOSSES = 3  # times that a run may lose its process without progress in between


def dispatch(jobs: Sequence[Job], engine: Engine, view: View) -> list[Result | Failure]:
    """The outcome of each job, in order.

    Args:
        jobs: include the source run of each stream, which the others of the stream wait for.
        engine: executes the runs; it is closed at the end.
        view: is told of the progress.
    """
    looked = 0.0
    with closing(engine):
        grid = _Grid(jobs, view)
        with Interrupts() as interrupts:
            while not grid.over:
                if interrupts.requested:
                    raise Interrupted(f"stopped with {len(grid.running)} active runs")
                engine.start(grid.take(engine.room), view.watch)
                ended = engine.ended()
                for number, failure in ended.items():
                    grid.end(number, failure)
                if time.monotonic() - looked > LOOK:
                    grid.look()
                    looked = time.monotonic()
                if not ended:
                    time.sleep(TICK)
    return [grid.outcomes[number] for number in range(len(jobs))]


class _Grid:
    """Jobs by number: waiting for their source, ready to start, running, or over."""

    def __init__(self, jobs: Sequence[Job], view: View) -> None:
        self.jobs, self.view = list(jobs), view
        self.outcomes: dict[int, Result | Failure] = {}
        self.ready: dict[int, Location] = {}  # with the run's folder
        self.running: dict[int, Location] = {}
        self.waiting: dict[str, list[int]] = defaultdict(list)  # by stream
        self._next: deque[int] = deque()  # to look at
        self._seen: dict[int, int] = {}  # images, at the last look at a run
        self._losses: Counter[int] = Counter()  # without progress in between
        self._lost_at: dict[int, int] = {}  # images that a run had seen
        self._claimed: dict[int, float] = {}  # by another process, with the time of the next look
        sources = [number for number, job in enumerate(jobs) if job.cell.is_source]
        self._streams: dict[str, Stream] = {}
        for number in sources:
            self._streams.setdefault(jobs[number].stream_key, jobs[number].stream())
        for number, job in enumerate(jobs):
            if job.stream_key not in self._streams:
                raise ValueError(f"no source run for the stream of {job.cell}")
            self.waiting[job.stream_key].append(number)
        for number in sources:
            if number in self.waiting[jobs[number].stream_key]:
                self.waiting[jobs[number].stream_key].remove(number)
                self._release(number, None)

    @property
    def over(self) -> bool:
        return len(self.outcomes) == len(self.jobs)

    def take(self, room: int) -> Runs:
        """Up to `room` jobs to start: sources first, as others wait for them, then the longest."""
        if room < 1:
            return {}
        order = sorted(self.ready, key=lambda n: (not self.jobs[n].cell.is_source, -self._cost(n)))
        taken: dict[int, Job] = {}
        for number in order:
            if len(taken) == room:
                break
            # An active folder belongs to another job of the same cell.
            if self.ready[number] not in self.running.values() and not self._is_claimed(number):
                self.running[number] = self.ready.pop(number)
                self._next.append(number)
                taken[number] = self.jobs[number]
        return taken

    def _is_claimed(self, number: int) -> bool:
        """Whether another process is still making a run that it had claimed."""
        if number not in self._claimed:
            return False
        if time.monotonic() >= self._claimed[number]:
            owner = claims.holder(self.ready[number])
            if owner is None or not owner.is_alive:
                del self._claimed[number]
                return False
            self._claimed[number] = time.monotonic() + RETRY
        return True

    def end(self, number: int, failure: Failure | None) -> None:
        """A run has ended, with a result if there is no failure."""
        folder = self.running.pop(number)
        self._next.remove(number)
        if failure is None or (failure.lost and Result.exists(folder)):
            self._finish(number, folder)
        elif failure.claimed:
            self.view.claimed(self.jobs[number].cell, failure)
            self._claimed[number] = time.monotonic() + RETRY
            self.ready[number] = folder
        elif failure.lost and self._may_resume(number, folder):
            self.view.lost(self.jobs[number].cell, failure)
            self.ready[number] = folder
        else:
            self._fail(number, failure)

    def _may_resume(self, number: int, folder: Location) -> bool:
        """Whether a lost run has made progress since the last loss, or has losses left."""
        seen = self._progress(folder)
        if seen > self._lost_at.get(number, -1):
            self._lost_at[number], self._losses[number] = seen, 0
        self._losses[number] += 1
        return self._losses[number] <= LOSSES

    @staticmethod
    def _progress(folder: Location) -> int:
        try:
            progress = Progress.read(folder)
        except (OSError, ValueError):
            return 0
        return 0 if progress is None else progress.seen

    def look(self) -> None:
        """Report the progress of some runs, others each time."""
        for _ in range(min(LOOKS, len(self._next))):
            number = self._next[0]
            self._next.rotate(-1)
            with suppress(OSError, ValueError):  # the next look may succeed
                progress = Progress.read(self.running[number])
                seen = 0 if progress is None else progress.seen
                if progress is not None and seen > self._seen.get(number, seen):  # it moves
                    self.view.watch(self.jobs[number].cell, seen, progress.samples)
                self._seen[number] = seen

    def _cost(self, number: int) -> float:
        job = self.jobs[number]
        return job.cell.forwards * self._streams[job.stream_key].samples

    def _release(self, number: int, source_error: float | None) -> None:
        """A job may start, unless its result exists."""
        job = self.jobs[number] = replace(self.jobs[number], source_error=source_error)
        try:
            card = job.card(self._streams[job.stream_key])
            folder = job.out / card.run_id
            result = read_result(folder, card)
        except Exception as error:  # other cells can still run
            self._fail(number, Failure.of(error))
            return
        if result is None:
            self.ready[number] = folder
        else:
            self._done(number, result)

    def _finish(self, number: int, folder: Location) -> None:
        try:
            result = _arrived(folder)
        except (OSError, ValueError) as error:
            self._fail(number, Failure.of(error))
            return
        if result is None:
            self._fail(
                number,
                Failure(
                    f"no result in {folder}: do all machines share this folder, and have the same "
                    "versions of dab, torch and numpy?"
                ),
            )
            return
        samples = result.card.data.samples
        self.view.watch(self.jobs[number].cell, samples, samples)
        self._done(number, result)

    def _done(self, number: int, result: Result) -> None:
        job = self.jobs[number]
        self.outcomes[number] = result
        self.view.done(job.cell, result)
        if job.cell.is_source:
            for other in self.waiting.pop(job.stream_key, []):
                is_source = self.jobs[other].cell.is_source
                self._release(other, None if is_source else result.error)

    def _fail(self, number: int, failure: Failure) -> None:
        job = self.jobs[number]
        self.outcomes[number] = failure
        self.view.failed(job.cell, failure)
        if job.cell.is_source:
            for other in self.waiting.pop(job.stream_key, []):
                self._fail(other, Failure.of_source())


def _arrived(folder: Location) -> Result | None:
    """The result of a run that has ended: shared folders show files of other machines late."""
    until = time.monotonic() + LATE
    while (result := Result.read(folder)) is None and time.monotonic() < until:
        files.found(folder, "*")  # listing a folder refreshes it
        time.sleep(LOOK)
    return result
