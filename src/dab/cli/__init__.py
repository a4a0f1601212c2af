"""The command line: one module per command, with `add` for its options and `main` to run it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import dab
from dab.cli import bench, completion, data, methods, report, run, serve, suites, watch
from dab.cli.parser import Parser

__all__ = ["main", "parser"]

EXAMPLES = """examples:
  dab bench                                       a first comparison, in about a minute
  dab methods                                     every method with its paper and options
  dab run dab capacity=256 --samples 1000         one method over one stream of glyphs
  dab bench --suite demo                          a table of methods
  dab report results                              a page of all runs in a folder
  dab serve --model timm/vit_tiny_patch16_224     a server for many streams
  dab data list                                   every data set and what it needs

Use `dab COMMAND --help` for the options of a command, and more examples.
"""


def parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = Parser(
        prog="dab",
        description="Online test-time adaptation.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dab {dab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in (methods, run, bench, suites, report, watch, serve, data, completion):
        command.add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    chosen = parser().parse_args(arguments)
    try:
        status: int = chosen.main(chosen)
    except (ValueError, OSError) as error:
        print(f"dab: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        hint = "" if "pip install" in str(error) else ": pip install 'dab-tta[benchmark]'"
        print(f"dab: {error}{hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        reason = f"{error}; " if str(error) else ""
        print(f"dab: {reason}rerun the same command to resume", file=sys.stderr)
        return 130
    return status
