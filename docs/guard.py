"""The numbers and the picture of docs/guard.md.

`python docs/guard.py --results FILE ...` stores results of `python -m benchmarks.guard errors` in
docs/guard.json. `python docs/guard.py` draws the picture and prints the tables from that file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from pictures import save

FILE = Path(__file__).with_suffix(".json")
PICTURE = FILE.with_name("guard_errors.png")
NETS = {
    "cifar10": ("ViT, CIFAR-10", "#0072b2", "o"),
    "glyphs": ("ViT, glyphs", "#d55e00", "s"),
    "dab/resnet26_gn": ("ResNet-26-GN, CIFAR-10", "#009e73", "^"),
}
ORDERS = ("sorted", "shuffled", "dirichlet")
LONG = 10_000  # images
ALLOWED = 1.0  # points above the source model
LINEAR = 2.0  # points up to which the axes of the picture are linear

# What tells runs apart, other than whether there is a guard.
KEYS = ("net", "order", "method", "rate", "images")
KEYS += ("corruptions", "thin", "samples", "batch", "seed", "labeled")

# A cell: what `KEYS` say, the source's error, the errors without and with a guard ("unguarded" and
# "guarded"), rollbacks, false ones, the share of images compared in %, and by how many points the
# estimated error was off in each window.
Cell = Mapping[str, Any]


def collect(lines: Iterable[str]) -> list[Cell]:
    """The cells that were run both without and with a guard; nets without the name of a file."""
    pairs: dict[tuple[Any, ...], dict[bool, Any]] = {}
    for row in map(json.loads, lines):
        row["net"] = row["net"].partition("@")[0]
        pairs.setdefault(tuple(row[key] for key in KEYS), {})[row["guard"]] = row
    return [
        {
            **dict(zip(KEYS, key, strict=True)),
            "source": pair[True]["source"],
            "unguarded": pair[False]["error"],
            "guarded": pair[True]["error"],
            "rollbacks": len(pair[True]["rollbacks"]),
            "false": len(pair[True]["false"]),
            "compared": pair[True]["compared"],
            "off": pair[True]["off"],
        }
        for key, pair in sorted(pairs.items())
        if len(pair) == 2
    ]


def grid(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of short streams at all rates, by net; those of long ones are `healthy`."""
    return {
        net: found
        for net in NETS
        if (found := [c for c in cells if c["net"] == net and c["images"] < LONG])
    }


def summary(cells: Sequence[Cell]) -> str:
    """A row for each net."""
    lines = [
        "| net | cells run | more than a point above the source, without | with | worst, without "
        "| with | estimates off by |",
        "|---|---|---|---|---|---|---|",
    ]
    for net, found in grid(cells).items():
        excess = [[c[key] - c["source"] for c in found] for key in ("unguarded", "guarded")]
        above = [sum(each > ALLOWED for each in one) for one in excess]
        off = fmean(abs(each) for c in found for each in c["off"])
        lines.append(
            f"| {NETS[net][0]} | {len(found)} | {above[0]} | {above[1]} | {max(excess[0]):+.1f} "
            f"| {max(excess[1]):+.1f} | {off:.1f} |"
        )
    return "\n".join(lines)


def tables(cells: Sequence[Cell]) -> str:
    """Without → with a guard: a table for each net and order, a column for each rate."""
    parts = []
    for net, found in grid(cells).items():
        rates = sorted({c["rate"] for c in found})
        known = {(c["order"], c["method"], c["rate"]): c for c in found}
        for order in sorted({c["order"] for c in found}, key=ORDERS.index):
            of_order = [c for c in found if c["order"] == order]
            methods = sorted({c["method"] for c in of_order})
            (source,) = {c["source"] for c in of_order}
            lines = [
                f"**{NETS[net][0]}, {order}**, source {source:.1f}",
                "",
                f"| method | {' | '.join(f'x{rate:g}' for rate in rates)} |",
                "|---|" + "---|" * len(rates),
            ]
            for method in methods:
                shown = [_shown(known.get((order, method, rate))) for rate in rates]
                lines.append(f"| {method} | {' | '.join(shown)} |")
            parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _shown(cell: Cell | None) -> str:
    return "" if cell is None else f"{cell['unguarded']:.1f} → {_guarded(cell)}"


def _guarded(cell: Cell) -> str:
    """In bold if it is worse than allowed."""
    mark = "**" if cell["guarded"] > cell["source"] + ALLOWED else ""
    return f"{mark}{cell['guarded']:.1f}{mark}"


def healthy(cells: Sequence[Cell]) -> str:
    """The long streams at published rates."""
    head = (
        "| net, order (source) | method | without | with | rollbacks | false | images compared |\n"
        "|---|---|---|---|---|---|---|"
    )
    rows = [
        f"| {NETS[c['net']][0]}, {c['order']} ({c['source']:.1f}) | {c['method']} "
        f"| {c['unguarded']:.1f} | {_guarded(c)} | {c['rollbacks']} | {c['false']} "
        f"| {c['compared']:.0f} % |"
        for c in sorted((c for c in cells if c["images"] >= LONG), key=_place)
    ]
    return "\n".join([head, *rows])


def _place(cell: Cell) -> tuple[Any, ...]:
    return [*NETS].index(cell["net"]), ORDERS.index(cell["order"]), cell["method"]


def draw(cells: Sequence[Cell]) -> None:
    """What each cell is above the source model, without and with a guard."""
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
        axes.axhspan(ALLOWED, 100, color="#d1242f", alpha=0.08, lw=0)
        for net, found in grid(cells).items():
            name, color, marker = NETS[net]
            x, y = ([c[key] - c["source"] for c in found] for key in ("unguarded", "guarded"))
            axes.plot(x, y, marker, ms=4.5, color=color, alpha=0.6, mew=0, label=name)
        for axis in (axes.set_xscale, axes.set_yscale):
            axis("symlog", linthresh=LINEAR)
        ticks = [-20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50]
        names = [f"{tick:+d}" if tick else "0" for tick in ticks]
        axes.set_xticks(ticks, names)
        axes.set_yticks(ticks[:-1], names[:-1])
        axes.minorticks_off()
        axes.set(xlim=(-20, 80), ylim=(-20, 20))
        axes.plot([-20, 20], [-20, 20], color="#8a8f98", lw=0.8, ls=":")
        axes.axhline(0, color="#8a8f98", lw=0.8)
        axes.axvline(0, color="#8a8f98", lw=0.8)
        axes.set_xlabel("points above the source model, without a guard")
        axes.set_ylabel("with a guard")
        axes.legend(frameon=False, loc="upper left")
        save(figure, PICTURE, colors=128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="to be stored")
    chosen = parser.parse_args()
    if chosen.results:
        lines = [line for file in chosen.results for line in file.read_text().splitlines()]
        text = ",\n".join(json.dumps(cell) for cell in collect(lines))
        FILE.write_text(f"[\n{text}\n]\n")
    cells = json.loads(FILE.read_text())
    draw(cells)
    print(summary(cells), tables(cells), healthy(cells), sep="\n\n")


if __name__ == "__main__":
    main()
