"""Draws docs/ranks.png and docs/error_cost.png from stored results; `docs/results.py` calls it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image, PngImagePlugin

from dab.benchmark.results.summary import Row
from dab.report.palette import COLORS, styles

if TYPE_CHECKING:
    from results import Pages

FOLDER = Path(__file__).parent
BENCHMARKS = {"glyphs": "glyphs", "cifar10": "CIFAR-10"}
TOP = 107  # of the errors that are shown, in % of the source model's; arrows are for higher ones
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
        _save(_rank_plot(pages), "ranks", fingerprint)
        _save(_cost_plot(pages), "error_cost", fingerprint)


def _streams(pages: Pages) -> dict[tuple[str, str], dict[str, Row]]:
    """The rows of each benchmark and order that all methods were run on, by name."""
    from results import ORDERS, label

    found: dict[tuple[str, str], dict[str, Row]] = {}
    for name in BENCHMARKS:
        for row in pages.rows(name):
            found.setdefault((name, ORDERS[row.setting]), {})[label(row)] = row
    every = set().union(*found.values())
    return {stream: rows for stream, rows in found.items() if rows.keys() == every}


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
    """Error as a share of the source model's against CPU time, mean over the benchmarks."""
    streams = _streams(pages)
    looks = _looks(streams)
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 5), dpi=DPI, layout="constrained")
    for axes, order in zip(panels, ("sorted", "shuffled"), strict=True):
        chosen = {data: rows for (data, setting), rows in streams.items() if setting == order}
        points = {}
        for name in chosen["glyphs"]:
            cost = fmean(pages.cost(data, rows[name]) for data, rows in chosen.items())
            share = fmean(100 * rows[name].error / rows["source"].error for rows in chosen.values())
            if share < TOP:
                points[name] = cost, share
                axes.plot(cost, share, "o", ms=7, **looks[name])
            else:
                points[f"{name} ({share:.0f} %)"] = cost, TOP
                axes.plot(cost, TOP, "^", ms=7, clip_on=False, **looks[name])
        axes.axhline(100, color="#8a8f98", lw=0.8, ls=":")
        axes.set(xscale="log", title=order, xlim=(0.9, 20))
        ticks = [1, 2, 4, 8, 16]
        axes.set_xticks(ticks, [f"x{tick}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(min(share for _, share in points.values()) - 3, TOP)
        axes.set_xlabel("CPU time, in multiples of the source model's")
        _name(axes, points)
    panels[0].set_ylabel("error, in % of the source model's")
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


def _save(figure: Figure, name: str, fingerprint: str) -> None:
    """As a small file that says which results it shows."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=1.5 * DPI)
    plt.close(figure)
    note = PngImagePlugin.PngInfo()
    note.add_text("results", fingerprint)
    picture = Image.open(drawn).convert("RGB").quantize(128)
    picture.save(FOLDER / f"{name}.png", optimize=True, pnginfo=note)


def shown(name: str) -> str:
    """The fingerprint of the results that a picture shows."""
    with Image.open(FOLDER / f"{name}.png") as picture:
        found: str = picture.info["results"]
    return found
