"""The rows of a stream: one method with its options, over its seeds, with every number shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from dab.benchmark.results import summary
from dab.benchmark.results.published import Published
from dab.report.collect import Run
from dab.report.label import Label

__all__ = ["Curve", "GuardCurve", "PublishedError", "ReportRow", "Scores", "make_rows"]
__all__ += ["smooth"]


@dataclass(frozen=True)
class Curve:
    """Error over the stream in %, mean over the seeds."""

    raw: tuple[float, ...]  # per window
    smooth: tuple[float, ...]  # mean over neighboring windows of the same domain


@dataclass(frozen=True)
class GuardCurve:
    """What the guard of a row estimated and did."""

    estimates: tuple[float | None, ...]  # error in % per window, mean over the seeds
    rollbacks: tuple[int, ...]  # images seen, of all seeds


@dataclass(frozen=True)
class PublishedError:
    """The published error of a row."""

    error: float  # in %
    text: str  # with a star if the table explains it
    source: str  # who published it
    starred: bool

    @classmethod
    def of(cls, found: Published) -> PublishedError:
        return cls(found.error, str(found), found.source, found.starred)


@dataclass(frozen=True)
class Scores:
    """The numbers of a row with at least one finished seed. Errors are in %."""

    seeds: tuple[int, ...]
    error: float  # mean over the seeds
    deviation: float | None  # between seeds, if there are several
    errors: Mapping[str, float]  # by domain
    source_error: float
    difference: float  # to the source model, in points
    differences: Mapping[str, float] | None  # by domain; None: no source run of the same seeds
    worse: bool  # than the source model, after rounding as in a table
    worse_domains: int | None  # how many of the domains are
    rank: int  # by error among the rows of the stream, from 1
    leading: bool  # the best row of its method
    published: PublishedError | None
    update_rate: float  # calls that updated, in %
    memory: float  # MiB
    cost: float | None  # CPU time in multiples of the source model's


@dataclass(frozen=True)
class ReportRow:
    """A method with its options on one stream."""

    id: str
    method: str
    label: Label
    is_source: bool
    capacity: int | None
    runs: tuple[str, ...]  # folders; finished seeds first
    in_progress: int  # runs
    curve: Curve
    difference: Curve | None  # to the source model; None: no source run of the same seeds
    guard: GuardCurve | None  # None: it has none
    scores: Scores | None  # None: no seed has finished


def make_rows(
    groups: Mapping[str, Sequence[Run]],
    labels: Sequence[Label],
    window: int,
    ends: Sequence[int] | None,
) -> tuple[ReportRow, ...]:
    """A row for each group of runs that differ only in the seed.

    Args:
        groups: the runs by row.
        labels: of the rows.
        window: images per window.
        ends: images seen at the end of each domain; None if domains are mixed.
    """
    runs = [run for group in groups.values() for run in group]
    scores = _scores(runs)
    sources = {run.card.source_id: run for run in runs if run.card.is_source}
    rows = []
    for (name, group), label in zip(groups.items(), labels, strict=True):
        done = [run for run in group if run.result is not None]
        unfinished = [run for run in group if run.result is None]
        shown = done or unfinished  # runs in progress count only if none has finished
        card = shown[0].card
        paired = [sources.get(run.card.source_id) for run in shown]
        rows.append(
            ReportRow(
                id=name,
                method=card.method,
                label=label,
                is_source=card.is_source,
                capacity=card.capacity,
                runs=tuple(name for run in [*done, *unfinished] for name in run.names),
                in_progress=len(unfinished),
                curve=_curve([run.windows for run in shown], window, ends),
                difference=_difference(shown, paired, window, ends),
                guard=_guard(shown),
                scores=scores.get(name),
            )
        )
    return tuple(rows)


def _scores(runs: Sequence[Run]) -> dict[str, Scores]:
    """The scores of rows that have finished seeds, by row."""
    results = [run.result for run in runs if run.result is not None]
    names = dict.fromkeys(result.card.group_id for result in results)
    found = dict(zip(names, summary.summarize(results), strict=True))
    sources = {result.card.source_id: result for result in results if result.card.is_source}
    unit = min((source.seconds for source in sources.values()), default=None)
    scores = {}
    for name, row in found.items():
        own = [result for result in results if result.card.group_id == name]
        pairs = [(result, sources.get(result.card.source_id)) for result in own]
        differences = {
            domain: fmean(a.errors[domain] - b.errors[domain] for a, b in pairs if b)
            for domain in row.errors
            if all(b and domain in b.errors for _, b in pairs)
        }
        seconds = min(result.seconds for result in own)
        scores[name] = Scores(
            seeds=row.seeds,
            error=row.error,
            deviation=row.deviation,
            errors=row.errors,
            source_error=row.source_error,
            difference=row.error - row.source_error,
            differences=differences or None,
            worse=row.worse_than_source,
            worse_domains=sum(round(d, 1) > 0 for d in differences.values())
            if differences
            else None,
            rank=1 + sum(other.error < row.error for other in found.values()),
            leading=all(
                other.error >= row.error for other in found.values() if other.method == row.method
            ),
            published=PublishedError.of(row.published) if row.published else None,
            update_rate=100 * row.update_rate,
            memory=row.peak_memory_mib,
            cost=None if unit is None else round(seconds / unit, 3),
        )
    return scores


def _curve(windows: Sequence[Sequence[float]], window: int, ends: Sequence[int] | None) -> Curve:
    """Means over the seeds, up to the end of the shortest."""
    means = [fmean(column) for column in zip(*windows, strict=False)]
    smoothed = smooth(means, window, ends)
    return Curve(*(tuple(round(value, 2) for value in values) for values in (means, smoothed)))


def _guard(runs: Sequence[Run]) -> GuardCurve | None:
    logs = [run.guard for run in runs if run.guard is not None and run.windows]
    if not logs:
        return None
    columns = zip(*(log.estimates for log in logs), strict=False)
    known = ([value for value in column if value is not None] for column in columns)
    return GuardCurve(
        tuple(round(fmean(values), 2) if values else None for values in known),
        tuple(sorted(seen for log in logs for seen in log.rollbacks)),
    )


def _difference(
    runs: Sequence[Run], sources: Sequence[Run | None], window: int, ends: Sequence[int] | None
) -> Curve | None:
    if not all(source is not None and source.windows for source in sources):
        return None
    differences = [
        [a - b for a, b in zip(run.windows, source.windows, strict=False)]
        for run, source in zip(runs, sources, strict=True)
        if source is not None
    ]
    return _curve(differences, window, ends)


def smooth(values: Sequence[float], window: int, ends: Sequence[int] | None) -> list[float]:
    """The mean over neighboring windows of the same domain.

    >>> smooth([0, 0, 0, 9, 9, 9], 10, [30, 60])
    [0.0, 0.0, 0.0, 9.0, 9.0, 9.0]
    """
    middles = (np.arange(len(values)) + 0.5) * window
    domain = np.searchsorted(ends or [], middles)
    reach = max(1, round(len(values) / 60))
    means = []
    for number in range(len(values)):
        near = slice(max(0, number - reach), number + reach + 1)
        means.append(float(np.mean(np.array(values)[near][domain[near] == domain[number]])))
    return means
