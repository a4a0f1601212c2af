"""How far an unfinished run is, in a small file for those who watch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dab.benchmark.results.errors import errors_by_window, window_size
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import FILE, GuardLog, Problem, read_run_file, skipping
from dab.benchmark.running.evaluation import Evaluation
from dab.streams import Stream
from dab.utils import files
from dab.utils.files import Location
from dab.utils.typed_json import from_json, to_json

__all__ = ["Progress", "ProgressFile", "progresses"]

PROGRESS = "progress.json"
SECONDS = 3.0  # from one message to the next, at least


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    card: RunCard
    seen: int  # images
    samples: int  # of the whole stream
    window: int
    windows: tuple[float, ...]  # error over time in %; the last window may be incomplete
    time: float  # seconds since 1970, when this was written
    guard: GuardLog | None = None

    @classmethod
    def read(cls, folder: Location) -> Progress | None:
        """The last progress of the run in a folder, or None if it has finished or not started."""
        try:
            return from_json(cls, read_run_file(folder, PROGRESS))
        except FileNotFoundError:
            return None


class ProgressFile:
    """Writes a small file into a run's folder now and then.

    Args:
        folder: of the run.
        card: its identity card.
        stream: what it is shown.
    """

    def __init__(self, folder: Location, card: RunCard, stream: Stream) -> None:
        self.file, self.card, self.stream = folder / PROGRESS, card, stream
        self._due = 0.0

    def tell(self, evaluation: Evaluation, *, now: bool = False) -> None:
        """Write how far a run is, if the last write is some time ago or `now`."""
        if time.monotonic() < self._due and not now:
            return
        done, predictions = evaluation.done, evaluation.predictions
        seen, window = self.stream.position(done), window_size(self.stream)
        wrong = predictions[:seen].numpy() != self.stream.labels[:seen]
        progress = Progress(
            card=self.card,
            seen=seen,
            samples=self.stream.samples,
            window=window,
            windows=tuple(errors_by_window(wrong, window)),
            time=time.time(),
            guard=evaluation.guard_log(),
        )
        with suppress(OSError):  # a storage that fails once is not a reason to stop
            files.write(self.file, json.dumps(to_json(progress)))
        self._due = time.monotonic() + SECONDS

    def end(self) -> None:
        """The run has a result to read instead."""
        self.file.unlink(missing_ok=True)


def progresses(out: Location, problems: list[Problem] | None = None) -> Iterator[Progress]:
    """The runs of a folder that have started and not finished; `problems` as in `results`."""
    for file in files.in_subfolders(out, PROGRESS):
        if files.is_taken(file.parent / FILE):
            continue
        with skipping(file.parent, problems):
            if (found := Progress.read(file.parent)) is not None:
                yield found
