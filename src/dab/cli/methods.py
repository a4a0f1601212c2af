"""`dab methods`: what there is."""

from __future__ import annotations

import argparse
import inspect

import dab
from dab.cli.options import Commands, command

__all__ = ["add", "describe", "main"]

EXAMPLES = """examples:
  dab methods           every method with its paper, options and defaults
  dab methods dab sar   only these
"""


def add(commands: Commands) -> None:
    parser = command(commands, "methods", "list the methods with their options", EXAMPLES, main)
    parser.add_argument("name", nargs="*", help="only these methods")


def main(chosen: argparse.Namespace) -> int:
    print("\n\n".join(describe(name) for name in chosen.name or dab.methods()))
    return 0


def describe(name: str) -> str:
    """A method's name, paper and first line, then its options with their defaults.

    >>> print(describe("source").splitlines()[0])
    source: Predicts and never adapts.
    """
    cls = dab.method(name)
    first_line = inspect.getdoc(cls).splitlines()[0]  # type: ignore[union-attr]
    options = [
        f"    {option.name} = {option.default!r}"
        for option in inspect.signature(cls).parameters.values()
        if option.name != "model"
    ]
    return "\n".join([f"{name}: {first_line}", f"  {cls.paper}", *options])
