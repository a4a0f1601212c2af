"""A grid on an engine: what may start when, what is to be tried again, and what has come out."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from contextlib import closing, suppress

from dab.benchmark.engines.engine import Engine, Runs
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.engines.progress_bars import Bars
from dab.benchmark.estimate import forwards
from dab.benchmark.results.result import Result
from dab.benchmark.running.interrupts import Interrupts
from dab.benchmark.running.progress_file import Progress
from dab.benchmark.running.run import Interrupted
from dab.streams import Stream
from dab.utils import files
from dab.utils.files import Location

__all__ = ["dispatch"]

TICK = 0.05  # seconds from one question whether a run has ended to the next
LOOK = 1.0  # seconds from one look at the progress of runs to the next
LOOKS = 20  # runs that are looked at each time: a storage does not like thousands
LATE = 10.0  # seconds that a result may be on its way
LOSSES = 3  # of its process or machine that a run may have; it goes on from its checkpoint


def dispatch(jobs: Sequence[Job], engine: Engine, view: Bars) -> list[Result]:
    """The results that there are in the end, in the order of the jobs.

    Args:
        jobs: among them the source run of each stream, which the others of the stream wait for.
        engine: makes the runs; it is closed in the end.
        view: is told of the progress.
    """
    looked = 0.0
    with closing(engine):
        grid = _Grid(jobs, view)
        with Interrupts() as interrupts:
            while not grid.over:
                if interrupts.requested:
                    raise Interrupted(f"stopped with {len(grid.running)} runs under way")
                engine.start(grid.take(engine.room))
                ended = engine.ended()
                for number, failure in ended.items():
                    grid.end(number, failure)
                if time.monotonic() - looked > LOOK:
                    grid.look()
                    looked = time.monotonic()
                if not ended:
                    time.sleep(TICK)
    return [grid.results[number] for number in sorted(grid.results)]


class _Grid:
    """Jobs, by their number: waiting for their source, ready to start, running, or over."""

    def __init__(self, jobs: Sequence[Job], view: Bars) -> None:
        self.jobs, self.view = jobs, view
        self.results: dict[int, Result] = {}
        self.ready: dict[int, Location] = {}  # with the folder of the run
        self.running: dict[int, Location] = {}
        self.waiting: dict[str, list[int]] = defaultdict(list)  # by stream
        self._failed: set[int] = set()
        self._next: deque[int] = deque()  # to be looked at
        self._seen: dict[int, int] = {}  # images, when a run was last looked at
        self._losses: Counter[int] = Counter()  # without a move in between
        self._lost_at: dict[int, int] = {}  # images that a run had seen
        sources = [number for number, job in enumerate(jobs) if job.cell.is_source]
        self._streams: dict[str, Stream] = {}
        for number in sources:
            self._streams.setdefault(jobs[number].stream_key, jobs[number].stream())
        for number, job in enumerate(jobs):
            if job.stream_key not in self._streams:
                raise ValueError(f"a grid needs the source run of every stream, not so {job.cell}")
            self.waiting[job.stream_key].append(number)
        for number in sources:
            if number in self.waiting[jobs[number].stream_key]:
                self.waiting[jobs[number].stream_key].remove(number)
                self._release(number, None)

    @property
    def over(self) -> bool:
        return len(self.results) + len(self._failed) == len(self.jobs)

    def take(self, room: int) -> Runs:
        """Up to so many jobs to start: first sources, which others wait for, then the longest."""
        if room < 1:
            return {}
        order = sorted(self.ready, key=lambda n: (not self.jobs[n].cell.is_source, -self._cost(n)))
        taken: dict[int, Job] = {}
        for number in order:
            # A folder that has one under way is that of the same cell once more.
            if len(taken) < room and self.ready[number] not in self.running.values():
                self.running[number] = self.ready.pop(number)
                self._next.append(number)
                taken[number] = self.jobs[number]
        return taken

    def end(self, number: int, failure: Failure | None) -> None:
        """A run has ended, well if there is no failure."""
        folder = self.running.pop(number)
        self._next.remove(number)
        if failure is None or (failure.lost and Result.exists(folder)):
            self._finish(number, folder)
        elif failure.lost and self._may_go_on(number, folder):
            self.view.lost(self.jobs[number].cell, failure)
            self.ready[number] = folder
        else:
            self._fail(number, failure)

    def _may_go_on(self, number: int, folder: Location) -> bool:
        """Whether a lost run has moved since it was lost before, or not been lost too often."""
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
        """Show how far some of the runs are, other ones each time."""
        for _ in range(min(LOOKS, len(self._next))):
            number = self._next[0]
            self._next.rotate(-1)
            with suppress(OSError, ValueError):  # it is only a look
                progress = Progress.read(self.running[number])
                seen = 0 if progress is None else progress.seen
                if progress is not None and seen > self._seen.get(number, seen):  # it moves
                    self.view.watch(self.jobs[number].cell, seen, progress.samples)
                self._seen[number] = seen

    def _cost(self, number: int) -> float:
        job = self.jobs[number]
        return forwards(job.cell) * self._streams[job.stream_key].samples

    def _release(self, number: int, source_error: float | None) -> None:
        """A job may start, unless its result is there."""
        job = self.jobs[number]
        try:
            folder = job.folder(self._streams[job.stream_key], source_error)
            result = Result.read(folder)
        except Exception as error:  # the other cells are none the worse for it
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
                    f"there is no result in {folder}: do all machines have this folder, and the "
                    "same versions of dab, torch and numpy?"
                ),
            )
            return
        samples = result.card.data.samples
        self.view.watch(self.jobs[number].cell, samples, samples)
        self._done(number, result)

    def _done(self, number: int, result: Result) -> None:
        job = self.jobs[number]
        self.results[number] = result
        self.view.done(job.cell, result)
        if job.cell.is_source:
            for other in self.waiting.pop(job.stream_key, []):
                is_source = self.jobs[other].cell.is_source
                self._release(other, None if is_source else result.error)

    def _fail(self, number: int, failure: Failure) -> None:
        job = self.jobs[number]
        self._failed.add(number)
        self.view.failed(job.cell, failure)
        if job.cell.is_source:
            for other in self.waiting.pop(job.stream_key, []):
                self._fail(other, Failure.of_source())


def _arrived(folder: Location) -> Result | None:
    """The result of a run that has ended: shared folders show files of other machines late."""
    until = time.monotonic() + LATE
    while (result := Result.read(folder)) is None and time.monotonic() < until:
        files.found(folder, "*")  # looking through a folder brings it up to date
        time.sleep(LOOK)
    return result
