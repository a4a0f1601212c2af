"""Two folders of results, row by row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.report.collect import Collected, whole_runs
from dab.report.streams import StreamSection
from dab.utils.typed_json import canonical

__all__ = ["ComparedRow", "Comparison", "compare"]


@dataclass(frozen=True)
class ComparedRow:
    """A row that both folders have, over the seeds that both have finished. Errors are in %."""

    stream: str
    row: str  # id in the first folder
    method: str
    label: str
    seeds: tuple[int, ...]
    error: float
    other_error: float
    difference: float  # in points; below 0: the first folder is better
    worse: bool  # the first folder, after rounding as in a table
    deviation: float | None  # of the difference between seeds, if there are several
    identical: bool  # whether every single prediction is the same


@dataclass(frozen=True)
class Comparison:
    """What two folders have in common, and what only one of them has."""

    other: str  # the second folder
    rows: tuple[ComparedRow, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]
    csv: str


@dataclass(frozen=True)
class _Entry:
    stream: str
    row: str
    method: str
    label: str
    results: dict[int, Result]  # by seed

    @property
    def name(self) -> str:
        return f"{self.label} on {self.stream}"


def compare(
    here: Collected,
    streams: Sequence[StreamSection],
    there: Collected,
    others: Sequence[StreamSection],
) -> Comparison:
    """Compare two folders on the seeds that both have.

    Rows match if method, options, stream and model have the same names and numbers; code,
    versions and weights may differ, as that is what two folders are usually compared for.
    """
    mine, theirs = _entries(here, streams), _entries(there, others)
    pairs = []
    for key, entries in mine.items():
        rest = theirs.get(key, [])
        for entry in list(entries):
            # If several rows have one key, prefer the one with the same identity.
            match = next((other for other in rest if other.row == entry.row), None)
            match = match or next(iter(rest), None)
            if match is not None and entry.results.keys() & match.results.keys():
                rest.remove(match)
                entries.remove(entry)
                pairs.append((entry, match))
    rows = tuple(_compared(*pair) for pair in pairs)
    return Comparison(
        str(there.out),
        rows,
        tuple(entry.name for entries in mine.values() for entry in entries),
        tuple(entry.name for entries in theirs.values() for entry in entries),
        _csv(rows),
    )


def _entries(collected: Collected, streams: Sequence[StreamSection]) -> dict[str, list[_Entry]]:
    """Finished rows, by what a row of another folder must share to be compared with them."""
    results: dict[str, dict[int, Result]] = {}
    for run in whole_runs(collected.runs):
        if run.result is not None:
            results.setdefault(run.card.group_id, {})[run.card.seed] = run.result
    entries: dict[str, list[_Entry]] = {}
    for stream in streams:
        for row in stream.rows:
            if row.id in results:
                card = next(iter(results[row.id].values())).card
                entry = _Entry(stream.title, row.id, row.method, row.label.short, results[row.id])
                entries.setdefault(_key(card), []).append(entry)
    return entries


def _key(card: RunCard) -> str:
    data = card.data
    stream = [data.name, data.samples, list(data.domains), data.severity, card.setting_title]
    return canonical([card.method, card.options, *stream, card.batch_size, card.model.name])


def _compared(mine: _Entry, theirs: _Entry) -> ComparedRow:
    seeds = sorted(mine.results.keys() & theirs.results.keys())
    pairs = [(mine.results[seed], theirs.results[seed]) for seed in seeds]
    differences = [a.error - b.error for a, b in pairs]
    difference = fmean(differences)
    return ComparedRow(
        stream=mine.stream,
        row=mine.row,
        method=mine.method,
        label=mine.label,
        seeds=tuple(seeds),
        error=fmean(a.error for a, _ in pairs),
        other_error=fmean(b.error for _, b in pairs),
        difference=difference,
        worse=round(difference, 1) > 0,
        deviation=stdev(differences) if len(seeds) > 1 else None,
        identical=all(a.predictions == b.predictions for a, b in pairs),
    )


def _csv(rows: Sequence[ComparedRow]) -> str:
    names = ("stream", "label", "error", "other_error", "difference", "deviation", "identical")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "seeds"])
    for row in rows:
        writer.writerow([*(getattr(row, name) for name in names), " ".join(map(str, row.seeds))])
    return text.getvalue()
