"""The tables of a report in the layout of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["tables"]

Plain = Mapping[str, Any]

# The names that papers write.
PRINTED = {
    "source": "Source",
    "tent": "TENT",
    "eata": "EATA",
    "sar": "SAR",
    "cotta": "CoTTA",
    "adacontrast": "AdaContrast",
    "rotta": "RoTTA",
    "note": "NOTE",
    "dab": "DAB",
    "roid": "ROID",
    "lame": "LAME",
}
ESCAPES = {"\\": r"\textbackslash{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}
ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def tables(data: Plain) -> str:
    """A table for each setting: a line for each method and buffer size, a column for each stream.

    It takes the packages booktabs and xcolor.
    """
    parts = ["% needs \\usepackage{booktabs} and \\usepackage{xcolor}"]
    rows = {row["id"]: row for stream in data["streams"] for row in stream["rows"]}
    for table in data["tables"]:
        columns = table["columns"]
        heads = ["Method", "$M$"]
        for column in columns:
            heads += [escaped(column["title"]), *(["published"] if column["published"] else [])]
        lines = [
            " & ".join([_name(line), str(line["capacity"] or ""), *_cells(line, columns, rows)])
            for line in table["lines"]
        ]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{Error in \% on the {escaped(table['setting'])} stream, mean and "
                    r"standard deviation over the seeds. Bold: best; red: worse than the source "
                    rf"model.{_star(lines)}}}",
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


def _star(lines: Sequence[str]) -> str:
    starred = any("*" in line for line in lines)
    return " *: not in the paper, from its authors' benchmark." if starred else ""


def _name(line: Plain) -> str:
    words = [PRINTED.get(line["method"], escaped(line["method"]))]
    if options := line["name"].removeprefix(line["method"]).strip():
        words.append(rf"{{\footnotesize {escaped(options)}}}")
    return " ".join(words)


def _cells(line: Plain, columns: Sequence[Plain], rows: Mapping[str, Plain]) -> list[str]:
    cells = []
    for column in columns:
        row = rows.get(line["rows"].get(column["stream"], ""), {})
        cells.append(_error(row))
        if column["published"]:
            figure = row.get("published")
            star = "" if not figure or figure[1] == "paper" else "*"
            cells.append("" if not figure else f"{figure[0]:.1f}{star}")
    return cells


def _error(row: Plain) -> str:
    if "error" not in row:
        return ""
    text = f"{row['error']:.1f}"
    if row["best"]:
        text = rf"\textbf{{{text}}}"
    if row["deviation"] is not None:
        text += rf"{{\scriptsize\,$\pm$\,{row['deviation']:.1f}}}"
    return rf"\textcolor{{red}}{{{text}}}" if row["worse"] else text


def escaped(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> escaped("update_every=64")
    'update\\_every=64'
    """
    return "".join(ESCAPES.get(sign, sign) for sign in text)
