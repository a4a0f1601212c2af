"""`dab completion`: scripts that complete commands, options and names in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from dab.cli.names import NAMES
from dab.cli.options import Commands, command
from dab.utils.imports import require

__all__ = ["add"]

EXAMPLES = """examples:
  dab completion bash
  dab completion zsh

Append the output to ~/.bash_completion, or write it to a file _dab in a folder of zsh's fpath.
Data sets, engines, loggers and suites are those that are installed now.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "completion", "print a completion script", EXAMPLES, main)
    parser.add_argument("shell", choices=["bash", "zsh"])


def main(chosen: argparse.Namespace) -> int:
    from dab.cli import parser

    shtab = require("shtab", extra="completion")
    complete = parser()
    for action in _actions(complete):
        if action.dest in NAMES:
            action.choices = NAMES[action.dest]()
    print(shtab.complete(complete, shell=chosen.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
