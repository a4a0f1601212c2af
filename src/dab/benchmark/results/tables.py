"""Rows as tables in the shape of the paper's: for the terminal, for documents, for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from dab.benchmark.results.published import STAR
from dab.benchmark.results.summary import Row
from dab.utils import files
from dab.utils.files import Location
from dab.utils.text import assignments

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dab.benchmark.cell import Cell

__all__ = [
    "by_cell",
    "by_domain",
    "by_method",
    "document",
    "legend",
    "show",
    "to_csv",
    "to_html",
    "to_json",
    "to_markdown",
    "to_rich",
    "write",
]

_SYMBOLS = (
    "↑: worse than the source model. M: images in the buffer. updates: share of the calls that "
    "updated."
)

_TRACKS = "tracks: tracks whose most frequent prediction is wrong."

# As papers abbreviate them.
SHORT = {
    "gaussian_noise": "gauss",
    "impulse_noise": "impul",
    "defocus_blur": "defoc",
    "motion_blur": "motn",
    "brightness": "brght",
    "contrast": "contr",
    "elastic_transform": "elast",
    "pixelate": "pixel",
    "jpeg_compression": "jpeg",
    "speckle_noise": "speck",
    "gaussian_blur": "blur",
}


class Entry(NamedTuple):
    """The content of one place in a table."""

    text: str
    best: bool = False
    worse: bool = False  # than the source model


Line = list[Entry]


def _line(*texts: str | Entry) -> Line:
    return [text if isinstance(text, Entry) else Entry(text) for text in texts]


def by_method(rows: Sequence[Row]) -> dict[str, list[Line]]:
    """For each setting, lines of method, buffer size and error by data set, header first."""
    tables = {}
    for setting in _distinct(row.setting for row in rows):
        chosen = [row for row in rows if row.setting == setting]
        data = _distinct(row.data for row in chosen)
        has_published = [
            name for name in data if any(r.published for r in chosen if r.data == name)
        ]
        has_tracks = [
            name
            for name in data
            if any(r.track_error is not None for r in chosen if r.data == name)
        ]
        heads = [
            [name, *["published"] * (name in has_published), *["tracks"] * (name in has_tracks)]
            for name in data
        ]
        lines = [_line("method", "M", *chain(*heads), "updates")]
        for method, size in _distinct((row.name, _size(row)) for row in chosen):
            same = [row for row in chosen if (row.name, _size(row)) == (method, size)]
            entries: list[str | Entry] = [method, size]
            for name in data:
                row = next((row for row in same if row.data == name), None)
                entries.append(_error(row, chosen) if row else "")
                if name in has_published:
                    entries.append(str(row.published) if row and row.published else "")
                if name in has_tracks:
                    share = row.track_error if row else None
                    entries.append("" if share is None else f"{share:.1f}")
            updates = " / ".join(f"{100 * row.update_rate:.0f} %" for row in same)
            lines.append(_line(*entries, updates))
        tables[setting] = lines
    return tables


def by_domain(rows: Sequence[Row]) -> dict[str, list[Line]]:
    """For each data set and setting, lines of method, buffer size, error by domain, mean."""
    tables = {}
    for data, setting in _distinct((row.data, row.setting) for row in rows):
        chosen = [row for row in rows if (row.data, row.setting) == (data, setting)]
        domains = _distinct(domain for row in chosen for domain in row.errors)
        short = [SHORT.get(domain, domain.split("_")[0]) for domain in domains]
        lines = [_line("method", "M", *short, "mean")]
        for row in chosen:
            errors = [f"{row.errors[d]:.1f}" if d in row.errors else "" for d in domains]
            lines.append(_line(row.name, _size(row), *errors, _error(row, chosen)))
        tables[f"{data}, {setting}"] = lines
    return tables


def by_cell(cells: Sequence[Cell]) -> dict[str, list[Line]]:
    """For each setting, lines of method, buffer size, data sets and seeds."""
    tables = {}
    for setting in _distinct(str(cell.setting) for cell in cells):
        groups: dict[tuple[str, str], list[Cell]] = {}
        for cell in cells:
            if str(cell.setting) == setting:
                options = {k: v for k, v in cell.options.items() if k != "capacity"}
                size = cell.all_options().get("capacity")
                words = [cell.method, *assignments(options)]
                name = " ".join(words), "" if size is None else str(size)
                groups.setdefault(name, []).append(cell)
        lines = [_line("method", "M", "data", "seeds")]
        for name, group in groups.items():
            data = ", ".join(_distinct(cell.data for cell in group))
            lines.append(_line(*name, data, " ".join(_distinct(str(cell.seed) for cell in group))))
        tables[setting] = lines
    return tables


def legend(rows: Sequence[Row]) -> str:
    """What the symbols in the tables of these rows mean."""
    several = any(row.deviation is not None for row in rows)
    seeds = "mean ± standard deviation over the seeds" if several else "one seed"
    tracks = any(row.track_error is not None for row in rows)
    starred = any(row.published and row.published.starred for row in rows)
    notes = [_SYMBOLS, *[_TRACKS] * tracks, *[STAR] * starred]
    return f"Error in %, {seeds}. {' '.join(notes)}"


def _size(row: Row) -> str:
    return "" if row.capacity is None else str(row.capacity)


def _error(row: Row, rows: Sequence[Row]) -> Entry:
    text = f"{row.error:.1f}"
    if row.deviation is not None:
        text += f" ± {row.deviation:.1f}"
    if row.worse_than_source:
        text += " ↑"
    best = min(other.error for other in rows if other.data == row.data)
    return Entry(text, row.error == best, row.worse_than_source)


def to_markdown(tables: dict[str, list[Line]]) -> str:
    """Tables with a heading each."""
    parts = []
    for title, (head, *lines) in tables.items():
        rule = _line("---", *(["---:"] * (len(head) - 1)))
        table = "\n".join(
            f"| {' | '.join(f'**{e.text}**' if e.best else e.text for e in line)} |"
            for line in [head, rule, *lines]
        )
        parts.append(f"### {title}\n\n{table}\n")
    return "\n".join(parts)


def to_rich(title: str, lines: Sequence[Line]) -> Table:
    """A table for the terminal: worse than source in red, the best in bold."""
    from rich.table import Table
    from rich.text import Text

    head, *body = lines
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for number, entry in enumerate(head):
        table.add_column(entry.text, justify="right" if number else "left", no_wrap=True)
    for line in body:
        table.add_row(
            *(
                Text(
                    entry.text,
                    style=f"{'red' if entry.worse else ''} {'bold' if entry.best else ''}",
                )
                for entry in line
            )
        )
    return table


def show(tables: dict[str, list[Line]], console: Console) -> None:
    """Print tables in full, even if the terminal is too narrow."""
    unlimited = console.options.update(width=10_000)
    for title, lines in tables.items():
        table = to_rich(title, lines)
        table.width = console.measure(table, options=unlimited).maximum
        console.print(table, crop=False)


def to_html(tables: dict[str, list[Line]]) -> str:
    """Tables with a caption each, for notebooks."""
    return "".join(
        f"<table><caption>{escape(title)}</caption><thead>{_html_line(head, 'th')}</thead>"
        f"<tbody>{''.join(_html_line(line, 'td') for line in lines)}</tbody></table>"
        for title, (head, *lines) in tables.items()
    )


def _html_line(line: Line, tag: str) -> str:
    cells = (f"<b>{escape(e.text)}</b>" if e.best else escape(e.text) for e in line)
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"


def document(rows: Sequence[Row]) -> str:
    """The tables by method and by domain, with their legend, as Markdown."""
    return f"{legend(rows)}\n\n{to_markdown(by_method(rows))}\n{to_markdown(by_domain(rows))}"


def write(rows: Sequence[Row], out: Location, name: str = "table") -> list[Location]:
    """Write the tables into a folder, as Markdown, CSV and JSON under one name."""
    contents = {
        f"{name}.md": document(rows),
        f"{name}.csv": to_csv(rows),
        f"{name}.json": to_json(rows),
    }
    for file, content in contents.items():
        files.write(out / file, content)
    return [out / file for file in contents]


def to_json(rows: Sequence[Row]) -> str:
    """All fields of all rows."""
    return json.dumps([asdict(row) for row in rows], indent=1)


def to_csv(rows: Sequence[Row]) -> str:
    """A line for each row, with the error of each domain."""
    domains = _distinct(domain for row in rows for domain in row.errors)
    text = io.StringIO()
    plain = (
        *("data", "setting", "method", "capacity", "error", "deviation", "track_error"),
        "source_error",
        *("update_rate", "images_per_second", "peak_memory_mib", "precision"),
    )
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*plain, "options", "seeds", "published", "published_by", *domains])
    for row in rows:
        options = " ".join(assignments(row.options))
        number = row.published or ("", "")
        seeds = " ".join(map(str, row.seeds))
        errors = [row.errors.get(domain, "") for domain in domains]
        writer.writerow([*(getattr(row, name) for name in plain), options, seeds, *number, *errors])
    return text.getvalue()


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
