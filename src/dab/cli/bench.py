"""`dab bench`: a grid of methods, data sets, settings and seeds."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dab.cli.options import (
    DATA_HELP,
    Commands,
    add_stream_options,
    at_least,
    command,
    import_methods,
)

if TYPE_CHECKING:
    from dab.benchmark import Cell, Job, Result
    from dab.benchmark.engines.progress_bars import Bars
    from dab.streams import Shard

__all__ = ["add", "cells", "complete", "execute", "jobs", "main", "plan"]

EXAMPLES = """examples:
  dab bench --suite demo
  dab bench --method source --method tent --method "dab capacity=64,256,1024" \\
      --setting continual correlated --seeds 0 1 2
  dab bench --data cifar10 --method "tent lr=1e-4,1e-3" --corruptions held-out
  dab bench --suite paper --root DATA --device cuda     the tables of the paper
  dab bench --suite paper --dry-run                     what they take

What is done already is not done again, and what was begun goes on. Tables are printed and written
into the folder of the results as table.md, table.csv and table.json, or under the suite's name.
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
    parser.add_argument("--data", nargs="+", help=f"(default: glyphs) {DATA_HELP}")
    parser.add_argument("--setting", nargs="+", help="as in `dab run` (default: correlated)")
    parser.add_argument("--seeds", nargs="+", type=at_least(0), help="(default: 0)")
    parser.add_argument(
        "--shard-streams",
        type=_pieces,
        default=[None],
        metavar="K[:consecutive]",
        help="deal each stream out to K adapters of their own, image by image or in K stretches, "
        "and report them together (default: one adapter sees it all)",
    )
    parser.add_argument("--domains", action="store_true", help="print errors by domain too")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="run nothing, but say how many runs and images it is, and about how long it takes",
    )
    add_stream_options(parser)
    add_engine_options(parser)


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Where the runs are made, and how many at once."""
    engines = parser.add_argument_group("engine", "figures are the same on all of them")
    engines.add_argument(
        "--engine",
        choices=["local", "ray", "submitit"],
        default="local",
        help="processes of this machine (default), tasks of Ray, or job arrays of Slurm",
    )
    engines.add_argument(
        "--jobs",
        type=at_least(1),
        help="runs at once (default: as many as there are GPUs, or cores; of a cluster, all that "
        "it takes); a single one is made in this very process",
    )
    engines.add_argument(
        "--address",
        help="of the cluster: for ray as `ray.init` takes it, or local for one of its own "
        "(default); for submitit slurm (default) or local",
    )
    engines.add_argument(
        "--gpus-per-run",
        type=_share,
        help="may be a part of one with ray (default: 1 with --device cuda, else 0)",
    )
    engines.add_argument(
        "--slurm",
        nargs="+",
        type=_parameter,
        default=[],
        metavar="NAME=VALUE",
        help="parameters of sbatch: partition=gpu time=120",
    )


def _pieces(text: str) -> list[Shard]:
    from dab.streams import Shard

    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return value


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"is written NAME=VALUE, got {text!r}")
    return name, int(value) if value.isdecimal() else value


def main(chosen: argparse.Namespace) -> int:
    complete(chosen)
    if chosen.dry_run:
        return plan(chosen)
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
        if not set(chosen.data or ()) <= set(fixed.get("data", chosen.data or ())):
            raise ValueError(f"the suite {chosen.suite!r} is for --data {' '.join(fixed['data'])}")
        grid.update(fixed)
    for name, value in grid.items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)


def cells(chosen: argparse.Namespace) -> list[Cell]:
    """The cells of a grid, the source model before all others: they are compared with it."""
    from dab.benchmark import Cell
    from dab.benchmark.compute import Compute
    from dab.data.corruptions import CORRUPTIONS, HELD_OUT
    from dab.streams import Setting

    corruptions = chosen.corruptions or CORRUPTIONS
    if list(corruptions) == ["held-out"]:
        corruptions = HELD_OUT
    compute = Compute(chosen.device, chosen.precision, chosen.compile, chosen.threads)
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
            compute=compute,
            shard=shard,
        )
        for data in chosen.data
        for setting in chosen.setting
        for name, options in _methods(chosen, setting)
        for seed in chosen.seeds
        for shard in chosen.shard_streams
    ]


def _methods(chosen: argparse.Namespace, setting: str) -> list[tuple[str, dict[str, Any]]]:
    """The methods of a setting with their options; a suite may have others for each setting."""
    from dab.benchmark import parse_method

    texts = chosen.method
    if isinstance(texts, Mapping):
        if setting not in texts:
            raise ValueError(f"the suite {chosen.suite!r} is for --setting {' '.join(texts)}")
        texts = texts[setting]
    methods = [method for text in texts for method in parse_method(text)]
    return [("source", {}), *(method for method in methods if method != ("source", {}))]


def jobs(chosen: argparse.Namespace) -> list[Job]:
    """The runs of a grid, with all that another process needs to make them, wherever it is."""
    from dab.benchmark import Job, TaskRecipe

    import_methods(chosen.imports)
    if chosen.image_list is not None and "imagenet-c" not in chosen.data:
        raise ValueError("--image-list is for imagenet-c")
    recipes = {
        name: TaskRecipe(
            name,
            samples=chosen.samples,
            root=_absolute(chosen.root),
            model=chosen.model,
            image_list=_absolute(chosen.image_list) if name == "imagenet-c" else None,
            source_images=_absolute(chosen.source_images),
            partial=chosen.partial,
        )
        for name in chosen.data
    }
    return [
        Job(
            cell,
            recipes[cell.data],
            chosen.out.absolute(),
            cache=_absolute(chosen.cache),
            workers=chosen.workers,
            checkpoint_every=chosen.checkpoint_every,
            imports=tuple(
                str(Path(name).absolute()) if name.endswith(".py") else name
                for name in chosen.imports
            ),
            log=tuple(chosen.log),
        )
        for cell in cells(chosen)
    ]


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


def plan(chosen: argparse.Namespace) -> int:
    """Print what a grid takes, and run nothing."""
    import torch
    from rich.console import Console

    from dab.benchmark.estimate import estimate
    from dab.benchmark.results import tables

    torch.set_num_threads(chosen.threads)
    console = Console()
    grid = jobs(chosen)
    with Console(stderr=True).status("measuring the models' speed"):
        shares = estimate(grid)
    tables.show(tables.by_cell([job.cell for job in grid]), console)
    tables.show({"what it takes": tables.by_share(shares)}, console)
    console.print(
        "forwards: images times what they cost in the method, in plain forwards (docs/costs.md). "
        f"hours: on one device like this one, {chosen.device}, from a short measurement of the "
        "model's forward; reading images is not counted, so give it --workers enough.",
        soft_wrap=True,
    )
    return 0


def run_all(chosen: argparse.Namespace, grid: list[Job], view: Bars) -> list[Result]:
    """The results that there are in the end, from this process or from those of an engine."""
    from dab.benchmark.engines import ENGINES, Resources, dispatch, run_here
    from dab.benchmark.engines.local import runs_at_once

    resources = Resources(
        jobs=chosen.jobs,
        threads=chosen.threads,
        device=chosen.device,
        gpus=chosen.gpus_per_run,
        address=chosen.address,
        options=dict(chosen.slurm),
    )
    if chosen.engine == "local" and (chosen.address or chosen.slurm or chosen.gpus_per_run):
        raise ValueError("--address, --slurm and --gpus-per-run are for --engine ray or submitit")
    if chosen.slurm and chosen.engine != "submitit":
        raise ValueError("--slurm is for --engine submitit")
    if (
        chosen.engine == "local"
        or chosen.address == "local"
        or (chosen.engine == "ray" and chosen.address is None)
    ):
        grid[0].cell.compute.check()  # the cluster is this machine
    if chosen.engine == "local" and runs_at_once(resources) == 1:
        return run_here(grid, view)
    if str(chosen.out).startswith("memory://"):
        raise ValueError(f"{chosen.out} is known to one process only: give --jobs 1")
    return dispatch(grid, ENGINES[chosen.engine](resources), view)


def _images(grid: list[Job]) -> dict[str, int]:
    """The images of each stream; all that is wrong with any of them is said here, at once."""
    from dab.data.problems import DataError

    images, problems = {}, []
    for job in grid:
        if job.cell.is_source:
            try:
                images[repr(job.cell)] = job.stream().samples
            except DataError as error:
                problems.append(str(error))
    if problems:
        raise DataError("\n".join(dict.fromkeys(problems)))
    return images


def execute(chosen: argparse.Namespace, domains: bool) -> int:
    """Run the cells of a grid and print their table; the exit status."""
    from rich.console import Console

    from dab.benchmark.engines.progress_bars import Bars
    from dab.benchmark.results import tables
    from dab.benchmark.results.published import source_mismatch
    from dab.benchmark.results.summary import summarize
    from dab.benchmark.running.loggers import create_logger

    grid = jobs(chosen)
    for name in chosen.log:
        create_logger(name, chosen.out)  # one that is not installed fails here
    images = _images(grid)
    with Bars([(job.cell, images[repr(job.cell.source())]) for job in grid]) as view:
        results = run_all(chosen, grid, view)
    rows = summarize(results)
    console = Console()
    tables.show(tables.by_method(rows), console)
    if domains:
        tables.show(tables.by_domain(rows), console)
    for doubt in filter(None, map(source_mismatch, results)):  # repeated at the end
        console.print(f"WARNING: {doubt}", style="bold red", markup=False, soft_wrap=True)
    if rows:
        console.print(tables.legend(rows), soft_wrap=True)
        written = tables.write(rows, chosen.out, chosen.suite or "table")
        console.print(f"The tables lie in {', '.join(map(str, written))}.", soft_wrap=True)
    return 0 if len(results) == len(grid) else 1
