"""The runs of a folder, read one by one; a damaged run is named and left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import FILE, Result
from dab.benchmark.results.shards import pooled
from dab.benchmark.running.progress_file import PROGRESS, Progress
from dab.report.palette import order
from dab.utils import files
from dab.utils.files import Location

__all__ = ["Collected", "NoRunsError", "Run", "collect", "whole_runs", "written_at"]


class NoRunsError(ValueError):
    """There is nothing to report."""


@dataclass(frozen=True)
class Run:
    """A run that has finished or is in progress, or all pieces of a sharded stream together."""

    names: tuple[str, ...]  # of its folders
    card: RunCard
    window: int
    windows: Sequence[float]
    result: Result | None
    progress: Progress | None


@dataclass(frozen=True)
class Collected:
    """What was found in a folder."""

    out: Location
    runs: tuple[Run, ...]  # in the order in which they are shown
    problems: tuple[str, ...]  # each names a file that was left out, and says why


def collect(out: Location) -> Collected:
    """Read every run in a folder; a `NoRunsError` if none can be read."""
    if not out.is_dir():
        raise NoRunsError(f"there is no folder {out}")
    runs: list[Run] = []
    problems: list[str] = []
    for found in _read(out):
        if isinstance(found, Run):
            runs.append(found)
        else:
            problems.append(str(found))
    if not runs:
        if problems:
            raise NoRunsError("\n".join([f"{out} has no readable run:", *problems]))
        raise NoRunsError(f"{out} has no runs: `dab bench --out {out}` makes some")
    return Collected(out, tuple(sorted(runs, key=_place)), tuple(problems))


def _read(out: Location) -> Iterator[Run | ValueError]:
    for file in files.found(out, f"*/{FILE}"):
        try:
            result = _result(file, written_at(file))
        except (ValueError, OSError) as error:
            yield error if isinstance(error, ValueError) else ValueError(f"{file}: {error}")
        else:
            name = (file.parent.name,)
            yield Run(name, result.card, result.window, result.windows, result, None)
    for file in files.found(out, f"*/{PROGRESS}"):
        if (file.parent / FILE).exists():
            continue
        try:
            progress = Progress.read(file.parent)
        except (ValueError, OSError) as error:
            yield error if isinstance(error, ValueError) else ValueError(f"{file}: {error}")
        else:
            if progress is not None:
                name = (file.parent.name,)
                yield Run(name, progress.card, progress.window, progress.windows, None, progress)


def written_at(file: Location) -> int:
    """When a file was written. In a store, results are final, and asking for each is slow."""
    return file.stat().st_mtime_ns if isinstance(file, Path) else 0


@lru_cache(maxsize=4096)
def _result(file: Location, written_at: int) -> Result:
    """A result, read once however often the folder is looked at."""
    result = Result.read(file.parent)
    assert result is not None
    return result


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
