"""Draws docs/ranks.png and docs/error_cost.png from stored results; `docs/results.py` calls it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from pictures import read_note, save

from dab.benchmark.results.summary import Row
from dab.report.palette import COLORS, styles

if TYPE_CHECKING:
    from results import Pages

BENCHMARKS = {"glyphs": "glyphs", "cifar10": "CIFAR-10"}
DPI = 100
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def ranks(errors: Mapping[str, float]) -> dict[str, float]:
    """The rank of each method by error, from 1; equal errors share the mean of their ranks.

    >>> ranks({"a": 3.0, "b": 1.0, "c": 3.0})
    {'a': 2.5, 'b': 1.0, 'c': 2.5}
    """
    values = [*errors.values()]
    return {
        name: sum(other < error for other in values) + (values.count(error) + 1) / 2
        for name, error in errors.items()
    }


def draw(pages: Pages, fingerprint: str) -> None:
    with mpl.rc_context(STYLE):
        for name, plot in (("ranks", _rank_plot), ("error_cost", _cost_plot)):
            save(plot(pages), _file(name), dpi=1.5 * DPI, colors=128, note=fingerprint)


def shown(name: str) -> str:
    """The fingerprint of the results that a picture shows."""
    return read_note(_file(name))


def _file(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.png")


def _streams(pages: Pages) -> dict[tuple[str, str], dict[str, Row]]:
    """The rows of each benchmark and order, by name: of the methods that were run on all."""
    from results import ORDERS, label

    found: dict[tuple[str, str], dict[str, Row]] = {}
    for name in BENCHMARKS:
        for row in pages.rows(name):
            found.setdefault((name, ORDERS[row.setting]), {})[label(row)] = row
    everywhere = set.intersection(*map(set, found.values()))
    return {
        stream: {name: row for name, row in rows.items() if name in everywhere}
        for stream, rows in found.items()
    }


def _rank_plot(pages: Pages) -> Figure:
    streams = _streams(pages)
    by_stream = [
        ranks({name: round(row.error, 1) for name, row in rows.items()})
        for rows in streams.values()
    ]
    mean = {name: fmean(one[name] for one in by_stream) for name in by_stream[0]}
    order = sorted(mean, key=lambda name: (-mean[name], name))
    looks = _looks(streams)
    figure, axes = plt.subplots(figsize=(7, 0.27 * len(order) + 0.9), layout="constrained")
    for place, name in enumerate(order):
        own, color = [one[name] for one in by_stream], looks[name]["color"]
        axes.plot([min(own), max(own)], [place, place], color=color, lw=1, alpha=0.5)
        axes.plot(own, [place] * len(own), "o", ms=3.5, color=color, alpha=0.4, mew=0)
        axes.plot(mean[name], place, "o", ms=8, **looks[name])
    axes.set_yticks(range(len(order)), order)
    axes.set_xlim(0.5, len(order) + 0.5)
    axes.set_xlabel(f"rank by error: mean over {len(streams)} streams (large), each stream (small)")
    axes.grid(axis="x", color="#e4e7eb", lw=0.6)
    axes.set_axisbelow(True)
    return figure


def _cost_plot(pages: Pages) -> Figure:
    """Error against CPU time: a row for each benchmark, a column for each order."""
    streams = _streams(pages)
    looks = _looks(streams)
    figure, panels = plt.subplots(2, 2, figsize=(9.5, 9), dpi=DPI, layout="constrained")
    for row, (data, title) in zip(panels, BENCHMARKS.items(), strict=True):
        for axes, order in zip(row, ("sorted", "shuffled"), strict=True):
            rows = streams[data, order]
            source = rows["source"].error
            top = 1.07 * source
            points = {}
            for name, one in rows.items():
                cost = pages.cost(data, one)
                if one.error < top:
                    points[name] = cost, one.error
                    axes.plot(cost, one.error, "o", ms=7, **looks[name])
                else:
                    points[f"{name}, {one.error:.1f}"] = cost, top
                    axes.plot(cost, top, "^", ms=7, clip_on=False, **looks[name])
            axes.axhline(source, color="#8a8f98", lw=0.8, ls=":")
            axes.set(xscale="log", title=f"{title}, {order}", xlim=(0.9, 20))
            ticks = [1, 2, 4, 8, 16]
            axes.set_xticks(ticks, [f"x{tick}" for tick in ticks])
            axes.minorticks_off()
            axes.set_ylim(min(error for _, error in points.values()) - 0.03 * source, top)
            _name(axes, points)
    for axes in panels[-1]:
        axes.set_xlabel("CPU time, in multiples of the source model's")
    for axes in panels[:, 0]:
        axes.set_ylabel("error in %")
    return figure


def _name(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write names beside points, right or left, as near to their height as there is room."""
    line, letter = 0.11 * DPI, 0.066 * DPI  # in pixels
    axes.figure.draw_without_rendering()  # only then are places in pixels known
    spots = {name: axes.transData.transform(point) for name, point in points.items()}
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in spots.values()]
    for name, (x, y) in sorted(spots.items(), key=lambda spot: -spot[1][1]):
        width = letter * len(name)
        places = (
            Bbox.from_bounds(left, y + step * line / 2, width, line)
            for step in sorted(range(-12, 12), key=lambda step: abs(step + 1))
            for left in (x + 9, x - 9 - width)
        )
        free = (box for box in places if box.x0 > axes.bbox.x0 and not box.count_overlaps(taken))
        box = next(free)
        taken.append(box)
        axes.annotate(
            name,
            points[name],
            ((box.x0 - x) * 72 / DPI, (box.y0 + line / 2 - y) * 72 / DPI),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            arrowprops={"arrowstyle": "-", "color": "#b6bbc4", "lw": 0.6},
        )


def _looks(streams: Mapping[tuple[str, str], Mapping[str, Row]]) -> dict[str, dict[str, str]]:
    """The color of each method; hollow if another method has it too, as there are few colors."""
    rows = {name: row for found in streams.values() for name, row in found.items()}
    known = styles(row.method for row in rows.values())
    looks = {}
    for name, row in rows.items():
        style = known[row.method]
        fill = "white" if style.shape > len(COLORS) else style.light
        looks[name] = {"color": style.light, "markerfacecolor": fill}
    return looks
