"""`dab report`: results as a page, as figures and as tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dab.cli.options import Commands, command, folder_or_url

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab report results                      write results/report.html
  dab report results --out runs.html      write the page elsewhere
  dab report results --compare before     add the differences to another folder, row by row
  dab report s3://bucket/results          read from a store, and write into it
  dab report results --figures figures    also write the charts as SVG and PDF, for a paper
  dab report results --latex tables.tex   also write the tables in the layout of the paper

The page is a single file that works offline. It includes runs in progress as far as they have come;
`dab watch` keeps such a page up to date. Runs that cannot be read are named and left out.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "report", "show results on one page", EXAMPLES, main)
    parser.add_argument("results", type=folder_or_url, help="folder of the results, or a URL")
    parser.add_argument(
        "--out", type=folder_or_url, help="the page (default: report.html in that folder)"
    )
    parser.add_argument(
        "--compare", type=folder_or_url, metavar="OTHER", help="second folder to compare with"
    )
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="for SVG and PDF files")
    parser.add_argument("--latex", type=Path, metavar="FILE", help="for tables in LaTeX")


def main(chosen: argparse.Namespace) -> int:
    from dab.report import gather, render
    from dab.utils import files

    report = gather(chosen.results, chosen.compare)
    for problem in report.problems:
        print(problem, file=sys.stderr)
    page = chosen.out or chosen.results / "report.html"
    for option, path in (("--out", page), ("--latex", chosen.latex)):
        if path is not None and path.is_dir():
            raise ValueError(f"{option} {path} is a folder: name a file")
    folders = {"--out": page.parent, "--figures": chosen.figures}
    folders["--latex"] = chosen.latex and chosen.latex.parent
    for option, path in folders.items():
        for folder in [path, *path.parents] if isinstance(path, Path) else []:
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"{option} needs a folder, but {folder} is a file")
    files.write(page, render(report))
    print(next(one.opening for one in report.streams if one.id == report.first_stream))
    print(f"Report written to {page}: open it in a browser.")
    if chosen.figures is not None:
        from dab.report.figures import draw

        written = draw(report, chosen.figures)
        print(f"{len(written)} figures written to {chosen.figures}.")
    if chosen.latex is not None:
        from dab.report.latex import tables

        files.write(chosen.latex, tables(report))
        print(f"Tables written to {chosen.latex}.")
    return 0
