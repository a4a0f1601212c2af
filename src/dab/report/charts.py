"""What the charts of a stream show, and the ranges of their axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dab.report.rows import ReportRow, Scores

__all__ = ["CostChart", "Highlight", "SizeChart", "SizeLine", "cost_chart", "highlights"]
__all__ += ["size_chart"]


@dataclass(frozen=True)
class Highlight:
    """A row that stands out."""

    row: str  # its id
    text: str
    worse: bool  # than the source model


@dataclass(frozen=True)
class SizeLine:
    """Rows that differ only in the size of the buffer."""

    name: str
    rows: tuple[str, ...]  # ids, by size


@dataclass(frozen=True)
class SizeChart:
    """Error against buffer size."""

    sizes: tuple[int, ...]
    lines: tuple[SizeLine, ...]
    low: int
    high: int


@dataclass(frozen=True)
class CostChart:
    """Error against cost."""

    rows: tuple[str, ...]  # ids, by error
    most: float  # multiples of the source model's CPU time
    low: int
    high: int


def highlights(rows: Sequence[ReportRow]) -> tuple[Highlight, ...]:
    """The source model, the best row, and the worst of those that are worse than the source."""
    done = _finished(rows)
    source = next((row for row, _ in done if row.is_source), None)
    found = [] if source is None else [Highlight(source.id, "not adapting", worse=False)]
    best = next((row for row, scores in done if scores.rank == 1), None)
    if best is not None and best is not source:
        found.append(Highlight(best.id, "best", worse=False))
    worse = sorted((scores.error, row.id) for row, scores in done if scores.worse)
    if worse:
        text = "worse than not adapting"
        text = text if len(worse) == 1 else f"worst; {len(worse)} rows are {text}"
        found.append(Highlight(worse[-1][1], text, worse=True))
    return tuple(found)


def size_chart(rows: Sequence[ReportRow]) -> SizeChart | None:
    """None unless some line has at least two sizes."""
    done = _finished(rows)
    lines: dict[str, list[tuple[int, ReportRow]]] = {}
    for row, _ in done:
        if row.capacity is not None:
            lines.setdefault(row.label.line, []).append((row.capacity, row))
    if not any(len(line) > 1 for line in lines.values()):
        return None
    titles = [line[0][1].label.title for line in lines.values()]
    shown = [scores for row, scores in done if row.capacity is not None or row.is_source]
    edges = [s.error + sign * (s.deviation or 0) for s in shown for sign in (-1, 1)]
    low, high = _extent(edges, margin=1)
    return SizeChart(
        tuple(sorted({size for line in lines.values() for size, _ in line})),
        tuple(
            SizeLine(
                name if titles.count(line[0][1].label.title) > 1 else line[0][1].label.title,
                tuple(row.id for _, row in sorted(line, key=lambda pair: pair[0])),
            )
            for name, line in lines.items()
        ),
        low,
        high,
    )


def cost_chart(rows: Sequence[ReportRow]) -> CostChart | None:
    """None unless at least two rows have a cost."""
    done = [(row, scores, scores.cost) for row, scores in _finished(rows) if scores.cost]
    if len(done) < 2:
        return None
    low, high = _extent([scores.error for _, scores, _ in done], margin=2)
    by_error = sorted(done, key=lambda entry: entry[1].error)
    return CostChart(
        tuple(row.id for row, _, _ in by_error), max(cost for *_, cost in done), low, high
    )


def _finished(rows: Iterable[ReportRow]) -> list[tuple[ReportRow, Scores]]:
    return [(row, row.scores) for row in rows if row.scores is not None]


def _extent(values: Sequence[float], margin: float) -> tuple[int, int]:
    """Multiples of 5 around all values, not below 0.

    >>> _extent([12.5, 30.0], margin=1)
    (10, 35)
    """
    low = 5 * math.floor((min(values) - margin) / 5)
    return max(0, low), 5 * math.ceil((max(values) + margin) / 5)
