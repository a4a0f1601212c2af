"""The command line: `python -m dab methods`."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence

import dab

__all__ = ["describe", "main"]

EXAMPLES = """examples:
  python -m dab methods           every method with its paper, options and defaults
  python -m dab methods dab sar   only these
"""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="dab",
        description="Online test-time adaptation.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dab {dab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    listing = commands.add_parser("methods", help="list the methods with their options")
    listing.add_argument("name", nargs="*", help="only these methods")
    chosen = parser.parse_args(arguments)
    try:
        print("\n\n".join(describe(name) for name in chosen.name or dab.methods()))
    except ValueError as error:
        print(f"dab: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
