"""Streams with their rows: runs that were shown the same images and can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dab.benchmark.results.tables import SHORT
from dab.report.charts import CostChart, Highlight, SizeChart, cost_chart, highlights, size_chart
from dab.report.collect import Collected, Run, whole_runs
from dab.report.label import Label, facts, label
from dab.report.rows import ReportRow, make_rows
from dab.report.traces import Traces
from dab.report.words import opening

__all__ = ["StreamSection", "make_streams"]


@dataclass(frozen=True)
class StreamSection:
    """A stream, and all rows that were run on it."""

    id: str
    data: str
    setting: str
    title: str
    detail: str
    opening: str  # the outcome, in words
    samples: int
    window: int  # images per window
    domains: tuple[str, ...]
    short: tuple[str, ...]  # their names in tables
    ends: tuple[int, ...] | None  # images seen at the end of each domain; None: mixed
    in_pieces: bool  # split over several adapters, so there is no common time
    rows: tuple[ReportRow, ...]
    highlights: tuple[Highlight, ...]
    sizes: SizeChart | None
    cost: CostChart | None

    def row(self, row_id: str) -> ReportRow:
        return next(row for row in self.rows if row.id == row_id)


def make_streams(collected: Collected, traces: Traces) -> tuple[StreamSection, ...]:
    """The streams of the runs, in their order."""
    streams: dict[str, list[Run]] = {}
    for run in collected.runs:
        streams.setdefault(run.card.stream_id, []).append(run)
    wholes = {name: _grouped(whole_runs(runs)) for name, runs in streams.items()}
    labels = label([[facts(runs[0].card) for runs in rows.values()] for rows in wholes.values()])
    return tuple(
        _stream(name, rows, names, traces)
        for (name, rows), names in zip(wholes.items(), labels, strict=True)
    )


def _grouped(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ only in their seeds, together."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.card.group_id, []).append(run)
    return groups


def _stream(
    name: str, groups: dict[str, list[Run]], labels: Sequence[Label], traces: Traces
) -> StreamSection:
    runs = [run for group in groups.values() for run in group]
    card = runs[0].card
    data = max((run.card.data for run in runs), key=lambda data: data.samples)
    sizes = None
    if card.shard is None and not card.setting.startswith("mixed"):
        sizes = _domain_sizes(runs, traces)
    same = sizes is not None and len(set(sizes)) == 1
    images = f"{sizes[0]:,} images each" if sizes and same else f"{data.samples:,} images"
    ends = None if sizes is None else tuple(sum(sizes[: n + 1]) for n in range(len(sizes)))
    title = f"{data.name}, {card.setting_title}"
    rows = make_rows(groups, labels, runs[0].window, ends)
    return StreamSection(
        id=name,
        data=data.name,
        setting=card.setting_title,
        title=title,
        detail=f"{len(data.domains)} domains, {images}, severity {data.severity}, "
        f"batches of {card.batch_size}, model {card.model.name}",
        opening=opening(title, len(data.domains), rows),
        samples=data.samples,
        window=runs[0].window,
        domains=data.domains,
        short=tuple(SHORT.get(domain, domain.split("_")[0]) for domain in data.domains),
        ends=ends,
        in_pieces=card.shard is not None,
        rows=rows,
        highlights=highlights(rows),
        sizes=size_chart(rows),
        cost=cost_chart(rows),
    )


def _domain_sizes(runs: Sequence[Run], traces: Traces) -> Sequence[int]:
    data = runs[0].card.data
    finished = next((run for run in runs if run.result is not None), None)
    sizes = None if finished is None else traces.domain_sizes(finished.names[0])
    # Corruptions are applied to the same images, so all domains have the same size.
    return sizes or [data.samples // len(data.domains)] * len(data.domains)
