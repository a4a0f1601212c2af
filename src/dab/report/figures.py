"""The figures of a report for a paper, as SVG and PDF."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    "pdf.fonttype": 42,  # letters stay letters
    "svg.fonttype": "none",
    "svg.hashsalt": "dab",  # the same figure has the same bytes
}

# Than the source model, as in page.css.
BETTER, WORSE = np.array([10, 72, 240]) / 255, np.array([214, 30, 60]) / 255

Plain = Mapping[str, Any]


def draw(data: Plain, folder: Path) -> list[Path]:
    """Write every figure of what `gather` found, in both formats; a name says stream and kind."""
    import matplotlib as mpl

    written = []
    with mpl.rc_context(STYLE):
        for stream in data["streams"]:
            name = _name(stream, data["streams"])
            for kind, figure in _figures(data, stream):
                for suffix in ("svg", "pdf"):
                    file = folder / f"{name}-{kind}.{suffix}"
                    files.write(file, _saved(figure, suffix))
                    written.append(file)
    return written


def _name(stream: Plain, streams: Sequence[Plain]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", stream["title"].lower()).strip("-")
    same = [other for other in streams if other["title"] == stream["title"]]
    return name if len(same) == 1 else f"{name}-{same.index(stream) + 1}"


def _saved(figure: Figure, suffix: str) -> bytes:
    content = io.BytesIO()
    when = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    figure.savefig(content, format=suffix, metadata=when, bbox_inches="tight")
    return content.getvalue()


def _figures(data: Plain, stream: Plain) -> Iterator[tuple[str, Figure]]:
    kinds: dict[str, Callable[[Plain, Plain], Figure | None]] = {
        "stream": _over_stream,
        "domains": _domains,
        "sizes": _sizes,
        "cost": _cost,
    }
    for kind, make in kinds.items():
        figure = make(data, stream)
        if figure is not None:
            yield kind, figure
    for inside in data["insides"].values():
        row = next((row for row in stream["rows"] if row["id"] == inside["row"]), None)
        if row is not None and "look_at" in inside:
            label = re.sub(r"[^a-z0-9.]+", "-", row["label"].lower()).replace(".", "_")
            yield f"inside-{label}", _inside(data, stream, row, inside)


def _new(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def _look(data: Plain, row: Plain) -> dict[str, Any]:
    return {
        "color": data["palette"][row["method"]]["light"],
        "linestyle": DASHES[row["variant"] % len(DASHES)],
    }


def _marker(data: Plain, row: Plain) -> str:
    return MARKERS[data["palette"][row["method"]]["shape"] % len(MARKERS)]


def _mark_domains(axes: Axes, stream: Plain, *, named: bool = True) -> None:
    if stream["ends"] is None:
        return
    for end in stream["ends"][:-1]:
        axes.axvline(end, color="0.75", linewidth=0.5, linestyle=":", zorder=0)
    if named:
        starts = [0, *stream["ends"]]
        for start, end, name in zip(starts, stream["ends"], stream["short"], strict=False):
            axes.annotate(
                name,
                xy=((start + end) / 2, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                fontsize=6,
                color="0.35",
            )


def smooth(values: Sequence[float], stream: Plain) -> list[float]:
    """A mean over neighboring windows of the same domain, as the page has it."""
    places = (np.arange(len(values)) + 0.5) * stream["window"]
    ends = stream["ends"] or [stream["samples"]]
    domain = np.searchsorted(ends, places)
    reach = max(1, round(len(values) / 60))
    means = []
    for number in range(len(values)):
        near = slice(max(0, number - reach), number + reach + 1)
        means.append(float(np.mean(np.array(values)[near][domain[near] == domain[number]])))
    return means


def _over_stream(data: Plain, stream: Plain) -> Figure | None:
    rows = [row for row in stream["rows"] if row["windows"]]
    if not rows:
        return None
    figure, axes = _new(6.8, 2.6)
    for row in rows:
        places = (np.arange(len(row["windows"])) + 0.5) * stream["window"]
        look = _look(data, row)
        axes.plot(places, row["windows"], color=look["color"], linewidth=0.4, alpha=0.2)
        axes.plot(places, smooth(row["windows"], stream), **look, linewidth=1.3, label=row["label"])
    _mark_domains(axes, stream)
    axes.set(xlim=(0, stream["samples"]), ylim=(0, None))
    axes.set(xlabel="images seen", ylabel="error in %")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=4, fontsize=7)
    return figure


def _domains(data: Plain, stream: Plain) -> Figure | None:
    rows = [row for row in stream["rows"] if "errors" in row]
    if not rows:
        return None
    errors = np.array(
        [[row["error"], *(row["errors"].get(d, np.nan) for d in stream["domains"])] for row in rows]
    )
    source = next((e for row, e in zip(rows, errors, strict=True) if row["is_source"]), None)
    difference = np.zeros_like(errors) if source is None else errors - source
    figure, axes = _new(0.9 + 0.4 * errors.shape[1], 0.6 + 0.22 * len(rows))
    axes.imshow(tints(difference), aspect="auto")
    axes.axvline(0.5, color="white", linewidth=2)
    axes.set_xticks(range(errors.shape[1]), ["mean", *stream["short"]], rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for (row, column), error in np.ndenumerate(errors):
        if np.isfinite(error):
            axes.text(column, row, f"{error:.1f}", ha="center", va="center", fontsize=6.5)
    return figure


def tints(difference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colors of differences to the source model in %, as the page has them on a light ground.

    >>> tints(np.array([[0.0, 50.0]])).round(2).tolist()
    [[[1.0, 1.0, 1.0], [0.92, 0.56, 0.62]]]
    """
    known = np.nan_to_num(difference)[..., None]
    strength = np.minimum(1, np.abs(known) / 25) * 0.5
    color = np.where(known < 0, BETTER, WORSE)
    return (1 - strength) + strength * color


def _sizes(data: Plain, stream: Plain) -> Figure | None:
    rows = [row for row in stream["rows"] if "error" in row]
    lines: dict[str, list[Plain]] = {}
    for row in rows:
        if row["capacity"] is not None:
            lines.setdefault(row["line"], []).append(row)
    if not any(len(line) > 1 for line in lines.values()):
        return None
    figure, axes = _new(3.3, 2.4)
    methods = [line[0]["method"] for line in lines.values()]
    for name, line in lines.items():
        line.sort(key=lambda row: row["capacity"])
        color = data["palette"][line[0]["method"]]["light"]
        axes.errorbar(
            [row["capacity"] for row in line],
            [row["error"] for row in line],
            [row["deviation"] or 0 for row in line],
            color=color,
            marker=_marker(data, line[0]),
            markersize=4,
            linewidth=1.2,
            label=name if methods.count(line[0]["method"]) > 1 else line[0]["method"],
        )
    for row in rows:
        if row["is_source"]:
            axes.axhline(row["error"], **_look(data, row), linewidth=1, label="source")
    sizes = sorted({row["capacity"] for row in rows if row["capacity"] is not None})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set(xlabel="images in the buffer (M)", ylabel="error in %")
    axes.legend(fontsize=7)
    return figure


def _cost(data: Plain, stream: Plain) -> Figure | None:
    rows = [row for row in stream["rows"] if row.get("cost")]
    if len(rows) < 2:
        return None
    figure, axes = _new(3.3, 2.4)
    for row in rows:
        color = data["palette"][row["method"]]["light"]
        axes.plot(row["cost"], row["error"], _marker(data, row), color=color, markersize=5)
    axes.set(xlim=(0, 1.25 * max(row["cost"] for row in rows)))
    axes.margins(y=0.15)
    axes.set(xlabel="processor time, multiples of a plain forward", ylabel="error in %")
    _name_points(data, axes, rows)
    return figure


def _name_points(data: Plain, axes: Axes, rows: Sequence[Plain]) -> None:
    """Names beside their points, each where it covers no point and no other name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    points = axes.transData.transform([(row["cost"], row["error"]) for row in rows])
    reach = 4 * figure.dpi / 72
    taken = [Bbox([point - reach, point + reach]) for point in points]
    for row in rows:
        name = axes.annotate(
            row["label"],
            xy=(row["cost"], row["error"]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color=data["palette"][row["method"]]["light"],
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


def _inside(data: Plain, stream: Plain, row: Plain, inside: Plain) -> Figure:
    """Classes of the stream and of the buffer, variety and age over time, and a moment's images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.8, 5.6), layout="constrained")
    parts = figure.subplot_mosaic(
        [["batch", "buffer"], ["variety", "age"], ["shown", "held"]], height_ratios=[1, 1, 1.8]
    )
    color, places = data["palette"][row["method"]]["light"], inside["look_at"]
    for part, title in (("batch", "classes in the stream's batches"), ("buffer", "in the buffer")):
        counts = _pixels(inside[f"{part}_classes"])
        extent = (0, stream["samples"], counts.shape[0], 0)
        look = {"cmap": "Grays", "vmin": 0, "vmax": max(1, counts.max())}
        parts[part].imshow(counts, **look, extent=extent, aspect="auto", interpolation="none")
        parts[part].set_title(title, fontsize=7)
        parts[part].set_ylabel("class")
    parts["variety"].plot(places, inside["buffer_balance"], color=color, label="buffer")
    parts["variety"].plot(places, inside["batch_balance"], ":", color="0.4", label="batch")
    parts["variety"].set_ylabel("variety in classes")
    parts["variety"].legend(fontsize=6)
    ages = np.maximum(0, np.array(inside["ages"]))
    parts["age"].fill_between(places, ages[:, 1], ages[:, 3], color=color, alpha=0.25, linewidth=0)
    parts["age"].plot(places, ages[:, 2], color=color)
    parts["age"].set_ylabel("age in images")
    for part in ("variety", "age"):
        parts[part].set(xlim=(0, stream["samples"]), ylim=(0, None))
        _mark_domains(parts[part], stream, named=False)
    shot = inside["shots"][len(inside["shots"]) // 2]
    for part, kind, words in (("shown", "batch", "shown"), ("held", "buffer", "held")):
        classes = len(set(shot[kind]["labels"]))
        parts[part].imshow(_pixels(shot[kind]["sheet"]))
        parts[part].axis("off")
        parts[part].set_title(f"{words} at {shot['at']:,}: {classes} classes", fontsize=7)
    return figure


def _pixels(uri: str) -> Any:
    from PIL import Image

    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))
