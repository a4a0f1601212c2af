"""The tables of a report in the layout of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from dab.report.report import Report
from dab.report.rows import ReportRow, Scores
from dab.report.tables import Column, Line

__all__ = ["tables"]

COLORS = "Bold: best; red: worse than the source model."

ESCAPES = {"\\": r"\textbackslash{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}
ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def tables(report: Report) -> str:
    """A table for each setting: a line per method and buffer size, a column per stream.

    Needs the packages booktabs and xcolor.
    """
    parts = ["% needs \\usepackage{booktabs} and \\usepackage{xcolor}"]
    for table in report.tables:
        heads = ["Method", "$M$"]
        for column in table.columns:
            heads += [escaped(column.title), *(["published"] if column.published else [])]
        lines = [
            " & ".join(
                [_name(line), str(line.capacity or ""), *_cells(line, table.columns, report)]
            )
            for line in table.lines
        ]
        caption = f"{escaped(table.setting)} stream. {_text(table.caption)}"
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{' '.join([caption, COLORS, table.note]).strip()}}}",
                    rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
                    r"\toprule",
                    f"{' & '.join(heads)} \\\\",
                    r"\midrule",
                    *(f"{line} \\\\" for line in lines),
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def _text(caption: str) -> str:
    return escaped(caption).replace("±", r"$\pm$")


def _name(line: Line) -> str:
    words = [escaped(line.title)]
    if line.options:
        words.append(rf"{{\footnotesize {escaped(line.options)}}}")
    return " ".join(words)


def _cells(line: Line, columns: Sequence[Column], report: Report) -> list[str]:
    cells = []
    for column in columns:
        row: ReportRow | None = None
        if column.stream in line.rows:
            row = report.row(line.rows[column.stream])
        scores = None if row is None else row.scores
        cells.append("" if scores is None else _error(scores))
        if column.published:
            number = None if scores is None else scores.published
            cells.append("" if number is None else number.text)
    return cells


def _error(scores: Scores) -> str:
    text = f"{scores.error:.1f}"
    if scores.rank == 1:
        text = rf"\textbf{{{text}}}"
    if scores.deviation is not None:
        text += rf"{{\scriptsize\,$\pm$\,{scores.deviation:.1f}}}"
    return rf"\textcolor{{red}}{{{text}}}" if scores.worse else text


def escaped(text: str) -> str:
    r"""Text that LaTeX prints literally.

    >>> escaped("update_every=64")
    'update\\_every=64'
    """
    return "".join(ESCAPES.get(sign, sign) for sign in text)
