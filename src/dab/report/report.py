"""Everything that a report shows of a folder of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dab.benchmark.results.result import Problem
from dab.report.buffer_view import BufferView
from dab.report.collect import Run, collect
from dab.report.compare import Comparison, compare
from dab.report.correction_view import CorrectionView
from dab.report.palette import Style, styles
from dab.report.rows import ReportRow
from dab.report.runs import RunView, make_run_views
from dab.report.streams import StreamSection, make_streams
from dab.report.tables import Table, make_tables, to_csv
from dab.report.traces import Traces
from dab.report.words import Term, glossary
from dab.utils.files import Location

__all__ = ["Panel", "Report", "gather"]

# Characters that all buffers together may take, so that a page of 500 runs stays below 5 MB.
ROOM = 2_800_000
ROOM_FOR_CORRECTIONS = 600_000

View = TypeVar("View")


@dataclass(frozen=True)
class Panel(Generic[View]):
    """A look inside one seed of a row."""

    run: str
    row: str  # id
    view: View


@dataclass(frozen=True)
class Report:
    """A folder of runs, with every number that the page, the figures and the tables show."""

    title: str
    headline: str  # counts of runs, methods and streams
    styles: Mapping[str, Style]  # by method
    streams: tuple[StreamSection, ...]
    first_stream: str  # id of the one to show at first, that with the most rows
    tables: tuple[Table, ...]
    csv: str  # all finished rows
    runs: Mapping[str, RunView]  # by folder
    buffers: tuple[Panel[BufferView], ...]
    buffers_left_out: int  # because the page would become too large
    corrections: tuple[Panel[CorrectionView], ...]  # of outputs
    corrections_left_out: int
    problems: tuple[Problem, ...]
    glossary: tuple[Term, ...]
    comparison: Comparison | None

    def row(self, row_id: str) -> ReportRow:
        return next(row for stream in self.streams for row in stream.rows if row.id == row_id)


def gather(out: Location, other: Location | None = None, *, now: float | None = None) -> Report:
    """Read a folder of results.

    Runs that cannot be read are left out and listed in `problems`; a `NoRunsError` if there is
    none that can be read.

    Args:
        out: the folder, or where it is in a store.
        other: a second folder to compare it with.
        now: seconds since 1970, to tell how long runs in progress have been silent.
    """
    collected, traces = collect(out), Traces(out)
    streams = make_streams(collected, traces)
    rows = list(_whole_rows(streams))
    buffered = [(rank, row) for rank, row in rows if row.capacity is not None]
    buffers, buffers_left_out = _panels(buffered, traces.buffer_view, ROOM)
    corrections, corrections_left_out = _panels(rows, traces.correction_view, ROOM_FOR_CORRECTIONS)
    problems = [*collected.problems]
    comparison = None
    if other is not None:
        there, more = collect(other), Traces(other)
        comparison = compare(collected, streams, there, make_streams(there, more))
        problems += [*there.problems, *more.problems]
    methods = dict.fromkeys(run.card.method for run in collected.runs)
    return Report(
        title=out.resolve().name or str(out),
        headline=_headline(collected.runs, len(methods), len(streams)),
        styles=styles(methods),
        streams=streams,
        first_stream=max(streams, key=lambda stream: len(stream.rows)).id,
        tables=make_tables(streams),
        csv=to_csv(streams),
        runs=make_run_views(collected.runs, now),
        buffers=buffers,
        buffers_left_out=buffers_left_out,
        corrections=corrections,
        corrections_left_out=corrections_left_out,
        problems=(*problems, *traces.problems),
        glossary=glossary(
            dict.fromkeys(stream.data for stream in streams),
            dict.fromkeys(run.card.setting for run in collected.runs),
            methods,
        ),
        comparison=comparison,
    )


def _headline(runs: Sequence[Run], methods: int, streams: int) -> str:
    done = sum(run.result is not None for run in runs)
    parts = [_count(done, "finished run")]
    if done < len(runs):
        parts.append(f"{len(runs) - done} in progress")
    return ", ".join([*parts, _count(methods, "method"), _count(streams, "stream")])


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _panels(
    rows: Sequence[tuple[int, ReportRow]],
    read: Callable[[str], tuple[int, View] | None],
    room: int,
) -> tuple[tuple[Panel[View], ...], int]:
    """The views of one seed of each row, as many as there is room for; how many are left out."""
    found: list[Panel[View]] = []
    left_out = 0
    for _, row in sorted(rows, key=lambda place: place[0]):
        looked = read(row.runs[0])
        if looked is None:
            continue
        size, view = looked
        room -= size
        if room < 0:
            left_out += 1
        else:
            found.append(Panel(row.runs[0], row.id, view))
    return tuple(found), left_out


def _whole_rows(streams: Sequence[StreamSection]) -> Iterable[tuple[int, ReportRow]]:
    """Finished rows of undivided streams, each with its rank within its method."""
    for stream in (stream for stream in streams if not stream.in_pieces):
        rows = [(row, row.scores.rank) for row in stream.rows if row.scores is not None]
        for row, rank in rows:
            yield sum(other < rank for o, other in rows if o.method == row.method), row
