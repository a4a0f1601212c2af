"""The runs of a folder; those that cannot be read are named and left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import GuardLog, Problem, Result, results
from dab.benchmark.results.shards import pooled
from dab.benchmark.running.progress_file import Progress, progresses
from dab.report.palette import order
from dab.utils.files import Location

__all__ = ["Collected", "NoRunsError", "Run", "collect", "whole_runs"]


class NoRunsError(ValueError):
    """There is nothing to report."""


@dataclass(frozen=True)
class Run:
    """A run that has finished or is in progress, or all pieces of a sharded stream together."""

    names: tuple[str, ...]  # of its folders
    card: RunCard
    window: int
    windows: tuple[float, ...]
    result: Result | None
    progress: Progress | None

    @property
    def guard(self) -> GuardLog | None:
        found = self.result or self.progress
        return None if found is None else found.guard


@dataclass(frozen=True)
class Collected:
    """What was found in a folder."""

    out: Location
    runs: tuple[Run, ...]  # in the order in which they are shown
    problems: tuple[Problem, ...]


def collect(out: Location) -> Collected:
    """Read every run in a folder; a `NoRunsError` if none can be read."""
    if not out.is_dir():
        raise NoRunsError(f"there is no folder {out}")
    problems: list[Problem] = []
    runs = [
        Run((result.card.run_id,), result.card, result.window, result.windows, result, None)
        for result in results(out, problems)
    ]
    runs += [
        Run((found.card.run_id,), found.card, found.window, found.windows, None, found)
        for found in progresses(out, problems)
    ]
    if not runs and problems:
        raise NoRunsError("\n".join([f"{out} has no readable run:", *map(str, problems)]))
    if not runs:
        raise NoRunsError(f"{out} has no runs: `dab bench --out {out}` makes some")
    return Collected(out, tuple(sorted(runs, key=_place)), tuple(problems))


def _place(run: Run) -> tuple[Any, ...]:
    """Sorts runs as they are shown."""
    card = run.card
    return (
        card.data.name,
        card.setting,
        card.stream_id,
        order(card.method),
        card.capacity or 0,
        json.dumps(card.options, sort_keys=True),
        card.seed,
        card.shard.number if card.shard is not None else 0,
    )


def whole_runs(runs: Iterable[Run]) -> list[Run]:
    """Runs as they are compared: pieces of a stream are one run, in progress until all finish."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.card.without_shard().run_id, []).append(run)
    finished = (run.result for group in groups.values() for run in group if run.result is not None)
    results = {result.card.without_shard().run_id: result for result in pooled(finished)}
    return [_whole(group, results.get(run_id)) for run_id, group in groups.items()]


def _whole(pieces: Sequence[Run], result: Result | None) -> Run:
    first = pieces[0]
    if first.card.shard is None:
        return first
    names = tuple(name for piece in pieces for name in piece.names)
    samples = sum(piece.card.data.samples for piece in pieces)
    common = first.card.without_shard()
    card = replace(common, data=replace(common.data, samples=samples))
    # Each piece has its own time, so there are no windows.
    return Run(names, result.card if result else card, first.window, (), result, None)
