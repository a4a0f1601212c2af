"""Tables of errors: a line per method and buffer size, a column per stream."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dab.benchmark.results.published import STAR
from dab.report.palette import order
from dab.report.rows import ReportRow
from dab.report.streams import StreamSection
from dab.report.words import caption

__all__ = ["Column", "Line", "Table", "make_tables", "to_csv"]

# The columns of the CSV; errors by domain follow.
PLAIN = ("data", "setting", "method", "capacity", "options", "seeds")
NUMBERS = (
    *("error", "deviation", "source_error", "difference", "worse_domains", "update_rate"),
    *("cost", "memory"),
)


@dataclass(frozen=True)
class Column:
    """The errors on one stream."""

    stream: str  # its id
    title: str
    detail: str  # distinguishes columns of the same title
    published: bool  # whether published errors are shown next to it


@dataclass(frozen=True)
class Line:
    """A method with its options and buffer size."""

    method: str
    title: str
    options: str
    capacity: int | None
    rows: Mapping[str, str]  # ids of rows by streams


@dataclass(frozen=True)
class Table:
    """All streams of one setting."""

    setting: str
    caption: str
    note: str  # explains the stars, if there are any
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


def make_tables(streams: Sequence[StreamSection]) -> tuple[Table, ...]:
    """A table for each setting."""
    return tuple(
        _table(setting, [stream for stream in streams if stream.setting == setting])
        for setting in dict.fromkeys(stream.setting for stream in streams)
    )


def _table(setting: str, streams: Sequence[StreamSection]) -> Table:
    names = [stream.data for stream in streams]
    found: dict[tuple[str, str, int | None], dict[str, ReportRow]] = {}
    for stream in streams:
        for row in stream.rows:
            key = row.method, row.label.options, row.capacity
            found.setdefault(key, {})[stream.id] = row
    ordered = sorted(found.items(), key=lambda e: (order(e[0][0]), e[0][2] or 0, e[0][1]))
    lines = []
    for (method, options, capacity), rows in ordered:
        title = next(iter(rows.values())).label.title
        ids = {stream: row.id for stream, row in rows.items()}
        lines.append(Line(method, title, options, capacity, ids))
    columns = [
        Column(
            stream.id,
            stream.data,
            stream.detail if names.count(stream.data) > 1 else "",
            any(row.scores is not None and row.scores.published for row in stream.rows),
        )
        for stream in streams
    ]
    every = [row for stream in streams for row in stream.rows]
    numbers = [row.scores.published for row in every if row.scores is not None]
    note = STAR if any(number is not None and number.starred for number in numbers) else ""
    return Table(setting, caption(every), note, tuple(columns), tuple(lines))


def to_csv(streams: Sequence[StreamSection]) -> str:
    """All finished rows with all digits, one per line, for other programs."""
    domains = list(dict.fromkeys(domain for stream in streams for domain in stream.domains))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*PLAIN, *NUMBERS, *domains])
    for stream in streams:
        for row in stream.rows:
            if (scores := row.scores) is not None:
                seeds = " ".join(map(str, scores.seeds))
                plain = [stream.data, stream.setting, row.method, row.capacity, row.label.options]
                numbers = [getattr(scores, name) for name in NUMBERS]
                errors = [scores.errors.get(domain) for domain in domains]
                writer.writerow([*plain, seeds, *numbers, *errors])
    return text.getvalue()
