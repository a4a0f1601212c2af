"""From parsed options to a grid, and from a grid to its table: what `run` and `bench` share."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dab.benchmark import Grid

__all__ = ["changed", "execute"]

# Fields of a grid by the name of their option.
FIELDS = {
    "method": "methods",
    "data": "data",
    "setting": "settings",
    "seeds": "seeds",
    "corruptions": "corruptions",
    "severity": "severity",
    "samples": "samples",
    "batch_size": "batch_size",
    "shard_streams": "shards",
    "root": "root",
    "model": "model",
    "source_images": "source_images",
    "partial": "partial",
}
COMPUTE = ("device", "precision", "compile", "threads")


def changed(grid: Grid, chosen: argparse.Namespace) -> Grid:
    """A grid with all that was chosen on the command line in place of its own values."""
    changes = _given(chosen, FIELDS)
    if compute := _given(chosen, {name: name for name in COMPUTE}):
        changes["compute"] = replace(grid.compute, **compute)
    return replace(grid, **changes)


def _given(chosen: argparse.Namespace, fields: dict[str, str]) -> dict[str, Any]:
    given = ((field, getattr(chosen, option, None)) for option, field in fields.items())
    return {field: value for field, value in given if value is not None}


def execute(
    grid: Grid, chosen: argparse.Namespace, *, domains: bool, name: str = "table", **engine: Any
) -> int:
    """Run a grid, print its tables, and write them to the folder of the results.

    Returns the exit status: 1 if any cell failed.

    Args:
        grid: what to run.
        chosen: where to; see `add_run_options`.
        domains: whether to print errors by domain too.
        name: of the tables' files.
        engine: see `run_grid`.
    """
    from rich.console import Console

    from dab.benchmark import run_grid
    from dab.benchmark.results import tables
    from dab.utils import allocator

    allocator.keep_freed()
    found = run_grid(
        grid,
        chosen.out,
        cache=chosen.cache,
        workers=chosen.workers,
        checkpoint_every=chosen.checkpoint_every,
        log=chosen.log,
        imports=chosen.imports,
        **engine,
    )
    console = Console()
    written = found.write(chosen.out, name) if found.rows else []
    if chosen.json:
        print(found.to_json())
        console = Console(stderr=True)
    else:
        tables.show(tables.by_method(found.rows), console)
        if domains:
            tables.show(tables.by_domain(found.rows), console)
    for warning in found.warnings:  # repeated, to be noticed
        console.print(f"WARNING: {warning}", style="bold red", markup=False, soft_wrap=True)
    if written and not chosen.json:
        console.print(tables.legend(found.rows), soft_wrap=True)
        console.print(f"Tables written to {', '.join(map(str, written))}", soft_wrap=True)
    if found.failures:
        total = len(found.failures) + len(found.results)
        print(f"dab: {len(found.failures)} of {total} runs failed", file=sys.stderr)
    return 1 if found.failures else 0
