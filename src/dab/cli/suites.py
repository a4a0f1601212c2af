"""`dab suites`: the grids that have a name."""

from __future__ import annotations

import argparse
import json

from dab.cli.options import Commands, add_imports, add_json, command, import_modules

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab suites                       every suite with its data, settings and number of runs
  dab suites --json
  dab suites --import my_suite.py   with your own
"""


def add(commands: Commands) -> None:
    parser = command(commands, "suites", "list the suites of `dab bench`", EXAMPLES, main)
    add_imports(parser)
    add_json(parser)


def main(chosen: argparse.Namespace) -> int:
    from dab.benchmark.estimate import shares
    from dab.benchmark.suites import SUITES, describe_suite, suite

    import_modules(chosen.imports)
    found = []
    for name in SUITES:
        grid = suite(name)
        found.append(
            {
                "name": name,
                "description": describe_suite(name),
                "data": list(grid.data),
                "settings": list(map(str, grid.settings)),
                "runs": len(grid.cells()),
                "images": sum(share.images for share in shares(grid.jobs())),
            }
        )
    if chosen.json:
        print(json.dumps(found, indent=1))
        return 0
    for entry in found:
        print(f"{entry['name']}: {entry['description']}")
        print(f"  {entry['runs']} runs, {entry['images']:,} images")
    return 0
