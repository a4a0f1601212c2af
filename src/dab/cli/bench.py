"""`dab bench`: a grid of methods, data sets, settings and seeds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dab.cli.options import Commands, add_stream_options, at_least, command, import_methods

if TYPE_CHECKING:
    from dab.benchmark import Cell, Result

__all__ = ["add", "cells", "complete", "execute", "main"]

EXAMPLES = """examples:
  dab bench --suite demo
  dab bench --method source --method tent --method "dab capacity=64,256,1024" \\
      --setting continual correlated --seeds 0 1 2
  dab bench --data cifar10 --method "tent lr=1e-4,1e-3" --corruptions held-out

What is done already is not done again, and what was begun goes on. Tables are printed and written
into the folder of the results as table.md, table.csv and table.json.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "bench", "run a grid and print its table", EXAMPLES, main)
    parser.add_argument("--suite", help="a grid by name; options given besides replace its own")
    parser.add_argument(
        "--method",
        action="append",
        metavar='"NAME OPTION=VALUE,VALUE ..."',
        help="a method, with several values for an option if wanted; may be repeated",
    )
    parser.add_argument("--data", nargs="+", help="glyphs (default), cifar10")
    parser.add_argument("--setting", nargs="+", help="as in `dab run` (default: correlated)")
    parser.add_argument("--seeds", nargs="+", type=at_least(0), help="(default: 0)")
    parser.add_argument("--domains", action="store_true", help="print errors by domain too")
    add_stream_options(parser)


def main(chosen: argparse.Namespace) -> int:
    complete(chosen)
    return execute(chosen, chosen.domains)


def complete(chosen: argparse.Namespace) -> None:
    """Fill in what was not chosen: from the suite, or else by default."""
    from dab.benchmark.suites import suite

    grid: dict[str, Any] = {
        "method": ["source"],
        "data": ["glyphs"],
        "setting": ["correlated"],
        "seeds": [0],
    }
    if chosen.suite is not None:
        fixed = suite(chosen.suite)
        if chosen.data is not None and chosen.data != fixed.get("data", chosen.data):
            raise ValueError(f"the suite {chosen.suite!r} is for --data {' '.join(fixed['data'])}")
        grid.update(fixed)
    for name, value in grid.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)


def cells(chosen: argparse.Namespace) -> list[Cell]:
    """The cells of a grid, the source model before all others: they are compared with it."""
    from dab.benchmark import Cell, parse_method
    from dab.corruptions import CORRUPTIONS, HELD_OUT
    from dab.streams import Setting

    corruptions = chosen.corruptions or CORRUPTIONS
    if list(corruptions) == ["held-out"]:
        corruptions = HELD_OUT
    methods = [method for text in chosen.method for method in parse_method(text)]
    methods = [("source", {}), *(method for method in methods if method != ("source", {}))]
    return [
        Cell(
            method=name,
            options=options,
            data=data,
            setting=Setting.parse(setting),
            seed=seed,
            batch_size=chosen.batch_size,
            corruptions=tuple(corruptions),
            severity=chosen.severity,
        )
        for data in chosen.data
        for setting in chosen.setting
        for name, options in methods
        for seed in chosen.seeds
    ]


def execute(chosen: argparse.Namespace, domains: bool) -> int:
    """Run the cells of a grid one after the other and print their table; the exit status."""
    import torch
    from rich.console import Console

    from dab.benchmark import create_task, run, tables
    from dab.benchmark.loggers import create_logger
    from dab.benchmark.progress import Bars
    from dab.benchmark.run import stream_of
    from dab.benchmark.summary import summarise

    import_methods(chosen.imports)
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    loggers = [create_logger(name, chosen.out) for name in chosen.log]
    grid = cells(chosen)
    tasks = {
        name: create_task(name, samples=chosen.samples, root=chosen.root) for name in chosen.data
    }
    for cell in grid:
        if cell.method == "source":  # what is wrong with a stream fails here, not in every cell
            stream_of(cell, tasks[cell.data], chosen.cache)
    with Bars(grid) as bars:

        def attempt(cell: Cell) -> Result | None:
            try:
                result = run(
                    cell,
                    tasks[cell.data],
                    chosen.out,
                    cache=chosen.cache,
                    workers=chosen.workers,
                    checkpoint_every=chosen.checkpoint_every,
                    watch=bars.watch,
                    loggers=loggers,
                )
            except Exception as error:  # the other cells are none the worse for it
                bars.failed(cell, error)
                return None
            bars.done(cell, result)
            return result

        results = list(filter(None, map(attempt, grid)))
    rows = summarise(results)
    console = Console()
    tables.show(tables.by_method(rows), console)
    if domains:
        tables.show(tables.by_domain(rows), console)
    if rows:
        console.print(tables.legend(rows), soft_wrap=True)
        written = tables.write(rows, chosen.out)
        console.print(f"The tables lie in {', '.join(map(str, written))}.", soft_wrap=True)
    return 0 if len(results) == len(grid) else 1
