"""`dab report`: a page, figures and tables of all runs in a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from dab.cli.options import Commands, command, folder_or_url

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab report results                      results/report.html, which opens anywhere
  dab report results --out runs.html      the same page elsewhere
  dab report s3://bucket/results          from a store, and into it
  dab report results --figures figures    its figures as SVG and PDF
  dab report results --latex tables.tex   its tables in the layout of the paper

The page is a single file that needs no network. It includes active runs, as far as they are;
`dab watch` keeps such a page up to date.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "report", "show all runs of a folder on one page", EXAMPLES, main)
    parser.add_argument("results", type=folder_or_url, help="folder of the results, or a URL")
    parser.add_argument(
        "--out", type=folder_or_url, help="the page (default: report.html in that folder)"
    )
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="for SVG and PDF files")
    parser.add_argument("--latex", type=Path, metavar="FILE", help="for tables in LaTeX")


def main(chosen: argparse.Namespace) -> int:
    from dab.report import gather, render
    from dab.utils import files

    data = gather(chosen.results)
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
    files.write(page, render(data))
    print(f"Report written to {page}: open it in a browser.")
    if chosen.figures is not None:
        from dab.report.figures import draw

        written = draw(data, chosen.figures)
        print(f"{len(written)} figures written to {chosen.figures}")
    if chosen.latex is not None:
        from dab.report.latex import tables

        files.write(chosen.latex, tables(data))
        print(f"Tables written to {chosen.latex}")
    return 0
