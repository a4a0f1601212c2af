"""The charts of a report as figures for a paper, in SVG and PDF."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dab.report.buffer_view import Looks
from dab.report.correction_view import CorrectionView, Span
from dab.report.report import Report
from dab.report.rows import ReportRow
from dab.report.streams import StreamSection
from dab.utils import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")  # in the order of the page's shapes

STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "dab",  # so that the bytes are reproducible
}

# Better or worse than the source model, as in page.css.
BETTER, WORSE = np.array([10, 72, 240]) / 255, np.array([214, 30, 60]) / 255


def draw(report: Report, folder: Path) -> list[Path]:
    """Write every figure of a report in both formats, named by stream and kind."""
    import matplotlib as mpl

    written = []
    with mpl.rc_context(STYLE):
        for stream in report.streams:
            name = _name(stream, report.streams)
            for kind, figure in _figures(report, stream):
                for suffix in ("svg", "pdf"):
                    file = folder / f"{name}-{kind}.{suffix}"
                    files.write(file, _saved(figure, suffix))
                    written.append(file)
    return written


def _name(stream: StreamSection, streams: Sequence[StreamSection]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", stream.title.lower()).strip("-")
    same = [other for other in streams if other.title == stream.title]
    return name if len(same) == 1 else f"{name}-{same.index(stream) + 1}"


def _saved(figure: Figure, suffix: str) -> bytes:
    content = io.BytesIO()
    when = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    figure.savefig(content, format=suffix, metadata=when, bbox_inches="tight")
    return content.getvalue()


def _figures(report: Report, stream: StreamSection) -> Iterator[tuple[str, Figure]]:
    kinds: dict[str, Callable[[Report, StreamSection], Figure | None]] = {
        "stream": _over_stream,
        "domains": _domains,
        "sizes": _sizes,
        "cost": _cost,
    }
    for kind, make in kinds.items():
        figure = make(report, stream)
        if figure is not None:
            yield kind, figure
    rows = {row.id: row for row in stream.rows}
    for buffer in report.buffers:
        if buffer.row in rows and buffer.view.looks is not None:
            row = rows[buffer.row]
            yield f"buffer-{_part(row)}", _buffer(report, stream, row, buffer.view.looks)
    for correction in report.corrections:
        if correction.row in rows:
            row = rows[correction.row]
            yield f"correction-{_part(row)}", _correction(report, stream, row, correction.view)


def _part(row: ReportRow) -> str:
    """A row's label as a part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", row.label.short.lower()).replace(".", "_")


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def _look(report: Report, row: ReportRow) -> dict[str, Any]:
    return {
        "color": report.styles[row.method].light,
        "linestyle": DASHES[row.label.variant % len(DASHES)],
    }


def _marker(report: Report, row: ReportRow) -> str:
    return MARKERS[report.styles[row.method].shape % len(MARKERS)]


def _mark_domains(axes: Axes, stream: StreamSection, *, named: bool = True) -> None:
    if stream.ends is None:
        return
    for end in stream.ends[:-1]:
        axes.axvline(end, color="0.75", linewidth=0.5, linestyle=":", zorder=0)
    if named:
        for start, end, name in zip((0, *stream.ends), stream.ends, stream.short, strict=False):
            axes.annotate(
                name,
                xy=((start + end) / 2, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=6,
                color="0.35",
            )


def _over_stream(report: Report, stream: StreamSection) -> Figure | None:
    rows = [row for row in stream.rows if row.curve.raw]
    if not rows:
        return None
    figure, axes = _new(6.8, 2.6)
    for row in rows:
        places = (np.arange(len(row.curve.raw)) + 0.5) * stream.window
        look = _look(report, row)
        axes.plot(places, row.curve.raw, color=look["color"], linewidth=0.4, alpha=0.2)
        axes.plot(places, row.curve.smooth, **look, linewidth=1.3, label=row.label.short)
    _mark_domains(axes, stream)
    axes.set(xlim=(0, stream.samples), ylim=(0, None))
    axes.set(xlabel="images seen", ylabel="error in %")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, fontsize=7)
    return figure


def _domains(report: Report, stream: StreamSection) -> Figure | None:
    rows = [(row, row.scores) for row in stream.rows if row.scores is not None]
    if not rows:
        return None
    errors = np.full((len(rows), 1 + len(stream.domains)), np.nan)
    difference = np.zeros_like(errors)
    for number, (_, scores) in enumerate(rows):
        errors[number] = [scores.error, *(scores.errors.get(d, np.nan) for d in stream.domains)]
        if scores.differences is not None:
            by_domain = [scores.differences.get(domain, 0.0) for domain in stream.domains]
            difference[number] = [scores.difference, *by_domain]
    figure, axes = _new(0.9 + 0.4 * errors.shape[1], 0.6 + 0.22 * len(rows))
    axes.imshow(tints(difference), aspect="auto")
    axes.axvline(0.5, color="white", linewidth=2)
    axes.set_xticks(range(errors.shape[1]), ["mean", *stream.short], rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [row.label.short for row, _ in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (place, column), error in np.ndenumerate(errors):
        if np.isfinite(error):
            axes.text(column, place, f"{error:.1f}", ha="center", va="center", fontsize=6.5)
    return figure


def tints(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors of differences to the source model in %, as on the page's light background.

    >>> tints(np.array([[0.0, 50.0]])).round(2).tolist()
    [[[1.0, 1.0, 1.0], [0.92, 0.56, 0.62]]]
    """
    known = difference[..., None]
    strength = np.minimum(1, np.abs(known) / 25) * 0.5
    color = np.where(known < 0, BETTER, WORSE)
    return (1 - strength) + strength * color


def _sizes(report: Report, stream: StreamSection) -> Figure | None:
    chart = stream.sizes
    if chart is None:
        return None
    figure, axes = _new(3.3, 2.4)
    for line in chart.lines:
        rows = [stream.row(row) for row in line.rows]
        points = [(row.capacity or 0, row.scores) for row in rows if row.scores is not None]
        axes.errorbar(
            [size for size, _ in points],
            [scores.error for _, scores in points],
            [scores.deviation or 0 for _, scores in points],
            color=report.styles[rows[0].method].light,
            marker=_marker(report, rows[0]),
            markersize=4,
            linewidth=1.2,
            label=line.name,
        )
    for row in stream.rows:
        if row.is_source and row.scores is not None:
            look = _look(report, row)
            axes.axhline(row.scores.error, **look, linewidth=1, label=row.label.short)
    axes.set_xscale("log", base=2)
    axes.set_xticks(chart.sizes, [str(size) for size in chart.sizes])
    axes.set(ylim=(chart.low, chart.high))
    axes.set(xlabel="images in the buffer (M)", ylabel="error in %")
    axes.legend(fontsize=7)
    return figure


def _cost(report: Report, stream: StreamSection) -> Figure | None:
    chart = stream.cost
    if chart is None:
        return None
    figure, axes = _new(3.3, 2.4)
    points = [
        (row, row.scores.cost, row.scores.error)
        for row in map(stream.row, chart.rows)
        if row.scores is not None and row.scores.cost is not None
    ]
    for row, cost, error in points:
        color = report.styles[row.method].light
        axes.plot(cost, error, _marker(report, row), color=color, markersize=5)
    axes.set(xlim=(0, 1.25 * chart.most), ylim=(chart.low, chart.high))
    axes.set(xlabel="CPU time, multiples of a plain forward", ylabel="error in %")
    _name_points(report, axes, points)
    return figure


def _name_points(
    report: Report, axes: Axes, points: Sequence[tuple[ReportRow, float, float]]
) -> None:
    """Labels next to their points, each where it covers no point and no other label."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    places = axes.transData.transform([(cost, error) for _, cost, error in points])
    reach = 4 * figure.dpi / 72
    taken = [Bbox([place - reach, place + reach]) for place in places]
    for row, cost, error in points:
        name = axes.annotate(
            row.label.short,
            xy=(cost, error),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color=report.styles[row.method].light,
        )
        for up, (right, side) in product(
            (0, 8, -8, 16, -16, 24, -24, 32, -32), ((6, "left"), (-6, "right"), (0, "center"))
        ):
            name.set(position=(right, up), ha=side)
            box = name.get_window_extent(renderer)
            inside = axes.bbox.x0 <= box.x0 and axes.bbox.y0 <= box.y0 and box.y1 <= axes.bbox.y1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)


def _buffer(report: Report, stream: StreamSection, row: ReportRow, looks: Looks) -> Figure:
    """Classes in the stream and in the buffer, variety and age over time, images of one moment."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 5.6), layout="constrained")
    parts = figure.subplot_mosaic(
        [["batch", "buffer"], ["variety", "age"], ["shown", "held"]], height_ratios=[1, 1, 1.8]
    )
    color = report.styles[row.method].light
    for part, title, uri in (
        ("batch", "classes in the stream's batches", looks.batch_classes),
        ("buffer", "classes in the buffer", looks.buffer_classes),
    ):
        counts = _pixels(uri)
        extent = (0, stream.samples, counts.shape[0], 0)
        look = {"cmap": "Grays", "vmin": 0, "vmax": max(1, counts.max())}
        parts[part].imshow(counts, **look, extent=extent, aspect="auto", interpolation="none")
        parts[part].set_title(title, fontsize=7)
        parts[part].set_ylabel("class")
    parts["variety"].plot(looks.at, looks.buffer_variety, color=color, label="buffer")
    parts["variety"].plot(looks.at, looks.batch_variety, ":", color="0.4", label="batch")
    parts["variety"].set_ylabel("variety in classes")
    parts["variety"].legend(fontsize=6)
    ages = np.array(looks.ages)
    low, high = ages[:, 1], ages[:, 3]
    parts["age"].fill_between(looks.at, low, high, color=color, alpha=0.25, linewidth=0)
    parts["age"].plot(looks.at, ages[:, 2], color=color)
    parts["age"].set_ylabel("age in images")
    for part in ("variety", "age"):
        parts[part].set(xlim=(0, stream.samples), ylim=(0, None))
        _mark_domains(parts[part], stream, named=False)
    shot = looks.shots[len(looks.shots) // 2]
    for part, sheet in (("shown", shot.batch), ("held", shot.buffer)):
        parts[part].imshow(_pixels(sheet.image))
        parts[part].axis("off")
        parts[part].set_title(f"{part} at {shot.at:,}: {sheet.classes} classes", fontsize=7)
    return figure


def _correction(
    report: Report, stream: StreamSection, row: ReportRow, view: CorrectionView
) -> Figure:
    """Labels and predictions of a part of the stream; what the correction relies on over time."""
    from matplotlib.figure import Figure

    heights = [1.6, 1] if view.shares else [1.6]
    figure = Figure(figsize=(6.8, 1.7 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
    color = report.styles[row.method].light
    _labels(axes[0], view.spans[len(view.spans) // 2], color)
    if shares := view.shares:
        for number, values in enumerate(shares.values):
            below = np.sum(shares.values[:number], axis=0) if number else np.zeros(len(values))
            axes[1].fill_between(
                shares.at,
                below,
                below + values,
                color=color,
                alpha=0.12 + 0.83 * number / max(1, len(shares.names) - 1),
                linewidth=0,
                label=shares.names[number],
            )
        axes[1].set(xlim=(0, stream.samples), ylim=(0, 100))
        axes[1].set(xlabel="images seen", ylabel="relies on, in %")
        _mark_domains(axes[1], stream, named=False)
        axes[1].legend(fontsize=6, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.32))
    return figure


def _labels(axes: Axes, span: Span, color: str) -> None:
    places = span.start + np.arange(len(span.labels)) + 0.5
    axes.plot(places, span.labels, "s", color="0.8", markersize=6, label="true class")
    axes.plot(
        places,
        span.before,
        "o",
        color="0.4",
        markersize=2,
        fillstyle="none",
        label=f"before the correction ({span.error_before:.1f} % wrong)",
    )
    axes.plot(
        places,
        span.after,
        ".",
        color=color,
        markersize=3,
        label=f"after it ({span.error_after:.1f} % wrong)",
    )
    axes.set(xlim=(span.start, span.start + len(places)), ylabel="class")
    axes.legend(fontsize=6, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))


def _pixels(uri: str) -> Any:
    from PIL import Image

    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))
