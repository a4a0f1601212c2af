"""Each run on its own: its card, the command that repeats it, and its outcome or progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.progress_file import Progress
from dab.report.collect import Run, whole_runs
from dab.report.reproduce import repeat

__all__ = ["Outcome", "RunView", "State", "make_run_views"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a finished run."""

    error: float  # in %
    updates: int
    seconds: float


@dataclass(frozen=True)
class State:
    """How far a run in progress is."""

    seen: int  # images
    samples: int
    share: float  # in %
    silent: int  # whole minutes since its last report; 0 if nobody watches
    error: float | None  # in %, so far


@dataclass(frozen=True)
class RunView:
    """A run as the page lists it; it has either an outcome or a state."""

    title: str
    card: RunCard
    command: str  # that repeats it
    notes: tuple[str, ...]  # what the command needs in addition
    outcome: Outcome | None
    state: State | None


def make_run_views(runs: Sequence[Run], now: float | None = None) -> dict[str, RunView]:
    """All runs by the names of their folders; pieces of a stream are listed one by one.

    Args:
        runs: finished and in progress.
        now: seconds since 1970, to tell how long runs in progress have been silent.
    """
    samples = {
        name: run.card.data.samples
        for run in whole_runs(runs)
        if run.card.shard is not None and len(run.names) == run.card.shard.pieces
        for name in run.names
    }
    return {run.names[0]: _view(run, samples.get(run.names[0]), now) for run in runs}


def _view(run: Run, samples: int | None, now: float | None) -> RunView:
    card, command = run.card, repeat(run.card, samples)
    title = f"{command.method}, {card.data.name}, {card.setting_title}, seed {card.seed}"
    return RunView(
        title,
        card,
        command.text,
        tuple(command.notes),
        _outcome(run.result),
        _state(run.progress, now),
    )


def _outcome(result: Result | None) -> Outcome | None:
    return None if result is None else Outcome(result.error, result.updates, result.seconds)


def _state(progress: Progress | None, now: float | None) -> State | None:
    if progress is None:
        return None
    seen, samples, windows = progress.seen, progress.samples, progress.windows
    error = fmean(windows) if windows else None
    silent = 0 if now is None else max(0, int(now - progress.time) // 60)
    return State(seen, samples, 100 * seen / max(1, samples), silent, error)
