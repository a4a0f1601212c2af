"""`dab bench`: a grid of methods, data sets, settings and seeds."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from dab.cli.execution import changed, execute
from dab.cli.options import (
    DATA_HELP,
    SETTING_HELP,
    Commands,
    add_run_options,
    add_stream_options,
    at_least,
    command,
    import_modules,
    parameter,
    pieces,
    share,
)

if TYPE_CHECKING:
    from dab.benchmark import Grid

__all__ = ["add", "chosen_grid", "main"]

EXAMPLES = """examples:
  dab bench                                             a first comparison, in about a minute
  dab bench --suite demo
  dab bench --suite glyphs --only tent dab              two methods of a suite
  dab bench --method tent --method "dab capacity=64,256,1024" \\
      --setting continual correlated --seeds 0 1 2 --samples 1000
  dab bench --data cifar10 --method "tent lr=1e-4,1e-3" --corruptions held-out
  dab bench --suite paper --dry-run                     counts, then the time it would take
  dab bench --suite paper --root DATA --device cuda     the tables of the paper

`dab suites` lists the suites. Finished runs are not repeated, and interrupted ones resume. Tables
are printed, and written next to the results as table.md, table.csv and table.json, or under the
names of the suite and of the methods that --only takes from it.
"""

FIRST = "quick"  # the suite that a bare `dab bench` runs


def add(commands: Commands) -> None:
    parser = command(commands, "bench", "run a grid and print its table", EXAMPLES, main)
    parser.add_argument("--suite", help="a named grid, which other options override. Available")
    parser.add_argument(
        "--method",
        action="append",
        metavar='"NAME OPTION=VALUE,VALUE ..."',
        help="a method, with one or several values per option; may be repeated, and replaces all "
        "methods of a suite. The source model is always included",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="of the methods of the suite, only these, with the options that the suite gives them",
    )
    parser.add_argument("--data", nargs="+", help=f"data sets {DATA_HELP}")
    parser.add_argument("--setting", nargs="+", help=SETTING_HELP)
    parser.add_argument("--seeds", nargs="+", type=at_least(0), help="(default: 0)")
    parser.add_argument(
        "--shard-streams",
        type=pieces,
        metavar="K[:consecutive]",
        help="split each stream among K adapters, image by image or in K consecutive parts, and "
        "report them together (default: one adapter)",
    )
    parser.add_argument("--domains", action="store_true", help="print errors by domain too")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run nothing: print the number of runs and images, then an estimate of the time",
    )
    add_stream_options(parser)
    add_engine_options(parser)
    add_run_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Where runs execute, and how many at a time."""
    engines = parser.add_argument_group("engine", "results are the same on all engines")
    engines.add_argument(
        "--engine",
        help="(default: local, or inline for one run at a time). Available",
    )
    engines.add_argument(
        "--jobs",
        type=at_least(1),
        help="runs at a time (default: one per GPU or core; on a cluster, as many as it accepts)",
    )
    engines.add_argument(
        "--address",
        help="cluster address. Ray: an address for `ray.init`, or `local` to start one (default). "
        "Slurm: `slurm` (default) or `local`",
    )
    engines.add_argument(
        "--gpus-per-run",
        type=share,
        help="may be a fraction with ray (default: 1 with --device cuda, else 0)",
    )
    engines.add_argument(
        "--slurm",
        nargs="+",
        type=parameter,
        default=[],
        metavar="NAME=VALUE",
        help="parameters of sbatch: partition=gpu time=120",
    )


def main(chosen: argparse.Namespace) -> int:
    from dab.benchmark.suites import describe_suite

    import_modules(chosen.imports)
    if is_bare(chosen):
        print(
            f"No --method, --suite or --data given: running the suite {FIRST!r}. "
            f"{describe_suite(FIRST)}\nNext: `dab suites`, `dab methods`, or "
            f"`dab report {chosen.out}` for a page of the results.",
            file=sys.stderr,
        )
        chosen.suite = FIRST
    grid = chosen_grid(chosen)
    if chosen.dry_run:
        return plan(grid, chosen)
    return execute(
        grid,
        chosen,
        domains=chosen.domains,
        name="-".join([chosen.suite or "table", *(chosen.only or ())]),
        engine=chosen.engine,
        jobs=chosen.jobs,
        address=chosen.address,
        gpus_per_run=chosen.gpus_per_run,
        slurm=dict(chosen.slurm),
    )


def is_bare(chosen: argparse.Namespace) -> bool:
    """Whether nothing says what to compare."""
    return not (chosen.method or chosen.suite or chosen.only or chosen.data)


def chosen_grid(chosen: argparse.Namespace) -> Grid:
    """The suite's grid, or the default one, with what was chosen in place of its own values."""
    from dab.benchmark import Grid, suite
    from dab.benchmark.tasks import parse_data

    if chosen.only and (chosen.suite is None or chosen.method):
        raise ValueError("--only takes methods from a suite: it needs --suite, and no --method")
    if chosen.suite is None:
        return changed(Grid(), chosen)
    grid = suite(chosen.suite)
    if chosen.only:
        grid = grid.only(*chosen.only)
    own = grid.data_names
    if not {parse_data(text)[0] for text in chosen.data or ()} <= set(own):
        raise ValueError(f"the suite {chosen.suite!r} is for --data {' '.join(own)} only")
    return changed(grid, chosen)


def duration(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"


def plan(grid: Grid, chosen: argparse.Namespace) -> int:
    """Print what a grid costs, the counts first: measuring the models takes a while."""
    from rich.console import Console

    from dab.benchmark.estimate import count_lines, shares, times
    from dab.benchmark.results import tables

    console = Console(stderr=chosen.json)
    jobs = grid.jobs(chosen.out, cache=chosen.cache)
    counts = shares(jobs)
    tables.show(tables.by_cell([job.cell for job in jobs]), console)
    tables.show({"counts": count_lines(counts)}, console)
    measured = []
    with Console(stderr=True).status("measuring the speed of the models"):
        for time in times(jobs, counts):
            measured.append(time)
            digits = 0 if time.images_per_second >= 10 else 1
            speed = f"{time.images_per_second:,.{digits}f} images/s"
            console.print(f"{time.data}: {duration(time.hours)} at {speed}", soft_wrap=True)
    device, total = grid.compute.device, sum(time.hours for time in measured)
    console.print(
        f"Total: about {duration(total)} on one device like this one ({device}), without reading "
        "images. The speed is that of the plain model, measured just now; forwards are images "
        "times the method's cost per image (docs/costs.md).",
        soft_wrap=True,
    )
    if chosen.json:
        found = {
            "counts": [one._asdict() for one in counts],
            "speeds": [time._asdict() for time in measured],
            "hours": total,
        }
        print(json.dumps(found, indent=1))
    return 0
