"""The numbers and pictures of docs/video.md.

`python docs/video.py --results FOLDER` writes docs/video.json from the runs of the suite gtsrb, and
`python docs/video.py` draws the pictures and prints the table from that file. The frames in the
picture are of a synthetic track, because those of GTSRB cannot be shipped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import cv2
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from pictures import save

from dab.benchmark.results.result import results
from dab.benchmark.suites import WEATHER
from dab.data.corruptions import corrupt
from dab.data.datasets.glyphs import Glyphs
from dab.report.palette import styles
from dab.streams import Setting
from dab.utils.text import assignments

FILE = Path(__file__).with_suffix(".json")
DRAWN = ("source", "source output=markov", "tent", "roid", "sequence_dab")
FRAMES = len(Setting("drive").severities(5))
SMOOTH = 10  # a point of the error is the mean over a tenth of the windows

Row = Mapping[str, Any]


def collect(folder: Path) -> list[Row]:
    """A row for each method and batch size, with one number per seed."""
    groups: dict[tuple[str, int, int], list[Any]] = {}
    for result in sorted(results(folder), key=lambda result: result.card.seed):
        card = result.card
        name = " ".join([card.method, *assignments(card.changed_options())])
        groups.setdefault((name, card.batch_size, card.data.samples), []).append(result)
    return [
        {
            "method": name,
            "batch_size": batch_size,
            "frames": frames,
            "seeds": [result.card.seed for result in group],
            "errors": [round(result.error, 3) for result in group],
            "track_errors": [round(result.track_error, 3) for result in group],
            "by_weather": {
                weather: round(fmean(result.errors[weather] for result in group), 2)
                for weather in group[0].errors
            },
            "update_rate": round(fmean(result.update_rate for result in group), 3),
            "windows": [
                round(fmean(values), 1)
                for values in zip(*(result.windows for result in group), strict=True)
            ]
            if name in DRAWN
            else [],
        }
        for (name, batch_size, frames), group in sorted(groups.items())
    ]


def number(values: Sequence[float]) -> str:
    """The mean over the seeds, with the standard deviation if there are several."""
    mean = f"{fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {stdev(values):.1f}"


def table(rows: Sequence[Row]) -> str:
    """Errors of frames and tracks, in batches and one frame at a time, best first."""
    by_size = {
        size: {row["method"]: row for row in rows if row["batch_size"] == size} for size in (64, 1)
    }
    lines = [
        "| method | frames | tracks | frames, one at a time | tracks, one at a time |",
        "|---|---:|---:|---:|---:|",
    ]
    methods = by_size[1] | by_size[64]
    for name in sorted(methods, key=lambda name: fmean(methods[name]["errors"])):
        cells = [
            number(by_size[size][name][what]) if name in by_size[size] else ""
            for size in (64, 1)
            for what in ("errors", "track_errors")
        ]
        lines.append(f"| {' | '.join([f'`{name}`', *cells])} |")
    return "\n".join(lines)


def weather_table(rows: Sequence[Row], methods: Sequence[str] = DRAWN) -> str:
    """Errors of frames by weather, in batches."""
    lines = [f"| method | {' | '.join(WEATHER)} |", f"|---|{'---:|' * len(WEATHER)}"]
    for method in methods:
        (row,) = (r for r in rows if (r["method"], r["batch_size"]) == (method, 64))
        errors = (f"{row['by_weather'][weather]:.1f}" for weather in WEATHER)
        lines.append(f"| `{method}` | {' | '.join(errors)} |")
    return "\n".join(lines)


def approach(glyph: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """A track: the glyph comes closer."""
    zooms = np.linspace(0.7, 1, FRAMES)
    moves = (np.array([[zoom, 0, 16 * (1 - zoom)], [0, zoom, 16 * (1 - zoom)]]) for zoom in zooms)
    border = cv2.BORDER_REPLICATE
    return [cv2.warpAffine(glyph, move, (32, 32), borderMode=border) for move in moves]  # type: ignore[misc]


def draw_frames(file: Path) -> None:
    """One track through each weather, at the severities of a drive."""
    severities = Setting("drive").severities(5)
    glyphs = Glyphs.of_split("test", 40).batch([3, 9, 16, 22, 30, 36])
    figure, axes = plt.subplots(len(WEATHER), FRAMES, figsize=(7.2, 4.6), layout="constrained")
    for row, weather, glyph in zip(axes, WEATHER, glyphs, strict=True):
        for ax, frame, severity in zip(row, approach(glyph), severities, strict=True):
            rng = np.random.default_rng(severity)
            ax.imshow(corrupt(frame, weather, severity, rng) if severity else frame)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if weather == WEATHER[0]:
                ax.set_title(str(severity), fontsize=9)
        name = weather.replace("_", " ")
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle("severity", fontsize=9)
    save(figure, file, dpi=120)


def draw_errors(rows: Sequence[Row], file: Path) -> None:
    """Error over the drive, batches of 64."""
    rows = [row for row in rows if row["method"] in DRAWN and row["batch_size"] == 64]
    style = styles(name.split()[0] for name in DRAWN)
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    highest = 0.0
    for row in rows:
        windows = len(row["windows"])
        size = max(1, windows // SMOOTH)
        smooth = np.convolve(row["windows"], np.ones(size) / size, "valid")
        at = np.linspace(size / 2, windows - size / 2, len(smooth)) / windows
        highest = max(highest, smooth.max())
        dashes = "--" if "markov" in row["method"] else "-"
        color = style[row["method"].split()[0]].light
        axes.plot(at, smooth, dashes, color=color, label=row["method"])
    for place, weather in enumerate(WEATHER):
        axes.axvline(place / len(WEATHER), color="#c8ccd2", lw=0.8)
        middle, name = (place + 0.5) / len(WEATHER), weather.replace("_", " ")
        axes.text(middle, 1.02, name, ha="center", transform=axes.transAxes)
    # The legend is above the curves.
    axes.set(xlim=(0, 1), ylim=(0, 1.2 * highest), xticks=[])
    axes.set_xlabel(f"the drive: {rows[0]['frames']:,} frames")
    axes.set_ylabel("error in %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, ncols=len(DRAWN), loc="upper center")
    save(figure, file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="folder of finished runs")
    chosen = parser.parse_args()
    if chosen.results is not None:
        FILE.write_text(json.dumps(collect(chosen.results), indent=1) + "\n")
    rows = json.loads(FILE.read_text())
    draw_frames(FILE.with_name("video_frames.png"))
    draw_errors(rows, FILE.with_name("video_errors.png"))
    print(table(rows), weather_table(rows), sep="\n\n")


if __name__ == "__main__":
    main()
