"""What a run that has not ended says about itself, for those who watch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from dab.benchmark.results.result import FILE, errors_by_window, read_json, window_size
from dab.streams import Stream
from dab.utils import files
from dab.utils.files import Location

__all__ = ["Progress", "Underway", "progresses"]

PROGRESS = "progress.json"
SECONDS = 3.0  # from one message to the next, at least


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    card: Mapping[str, Any]
    seen: int  # images
    samples: int  # of the whole stream
    window: int
    windows: list[float]  # error over time in %, the last one of what was seen of it
    time: float  # seconds since 1970, when this was written

    @classmethod
    def read(cls, folder: Location) -> Progress | None:
        """What the run in a folder said last, or None if it has ended or not yet begun."""
        file = folder / PROGRESS
        try:
            return cls(**read_json(file))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file} is damaged ({error}): remove it") from error


class Underway:
    """Leaves a small file in a run's folder now and then.

    Args:
        folder: of the run.
        card: its identity card.
        stream: what it is shown.
    """

    def __init__(self, folder: Location, card: Mapping[str, Any], stream: Stream) -> None:
        self.file, self.card, self.stream = folder / PROGRESS, card, stream
        self._due = 0.0

    def tell(self, done: int, predictions: Tensor, *, now: bool = False) -> None:
        """Write how far the run is after so many batches: `now`, or if some time has passed."""
        if time.monotonic() < self._due and not now:
            return
        seen, window = self.stream.position(done), window_size(self.stream)
        wrong = predictions[:seen].numpy() != self.stream.labels[:seen]
        progress = Progress(
            card=self.card,
            seen=seen,
            samples=self.stream.samples,
            window=window,
            windows=errors_by_window(wrong, window),
            time=time.time(),
        )
        with suppress(OSError):  # a storage that does not answer for once is no reason to stop
            files.write(self.file, json.dumps(asdict(progress)))
        self._due = time.monotonic() + SECONDS

    def end(self) -> None:
        """There is a result to read instead."""
        self.file.unlink(missing_ok=True)


def progresses(out: Location) -> Iterator[tuple[str, Progress]]:
    """The runs of a folder that have begun and not ended, by name."""
    for file in files.found(out, f"*/{PROGRESS}"):
        if not (file.parent / FILE).exists() and (found := Progress.read(file.parent)):
            yield file.parent.name, found
