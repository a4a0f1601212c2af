"""`dab methods`: all methods with their options."""

from __future__ import annotations

import argparse
import json
from typing import Any

import dab
from dab.cli.measured import read
from dab.cli.options import Commands, add_imports, add_json, command, import_modules
from dab.parts.options import Option, options_of
from dab.parts.step import counted
from dab.utils.text import summary

__all__ = ["add", "describe", "main"]

EXAMPLES = """examples:
  dab methods           every method with its paper, options and defaults
  dab methods dab sar   only these
  dab methods --json
"""


STREAMS = {"shuffled": "shuffled", "sorted": "sorted by class", "single": "one image per call"}


def add(commands: Commands) -> None:
    parser = command(commands, "methods", "list the methods with their options", EXAMPLES, main)
    parser.add_argument("name", nargs="*", help="only these methods")
    add_imports(parser)
    add_json(parser)


def main(chosen: argparse.Namespace) -> int:
    import_modules(chosen.imports)
    found = [describe(name) for name in chosen.name or dab.methods()]
    print(
        json.dumps(found, indent=1, default=repr) if chosen.json else "\n\n".join(map(_text, found))
    )
    return 0


def describe(name: str) -> dict[str, Any]:
    """What a method says about itself, and its options with their defaults.

    >>> describe("source")["summary"]
    'Predicts and never adapts.'
    """
    cls = dab.method(name)
    return {
        "name": name,
        "title": cls.title,
        "summary": summary(cls),
        "paper": cls.paper,
        "year": cls.year,
        "trains": cls.trains,
        "statistics": cls.published["statistics"],
        "passes": cls.passes,
        "forwards": cls.forwards,
        "measured": found._asdict() if (found := read().get(name)) else None,
        "options": {option.name: option.default for option in options_of(cls)},
    }


def _text(method: dict[str, Any]) -> str:
    options = options_of(dab.method(method["name"]))
    year = "" if method["year"] is None else f" ({method['year']})"
    return "\n".join(
        [
            f"{method['name']}: {method['title']}{year}. {method['summary']}",
            f"  {method['paper']}",
            f"  trains {method['trains']}; statistics of BatchNorm layers: {method['statistics']}",
            f"  cost per image in forward passes: {method['forwards']:g}{_most(method['passes'])}",
            *_measured(method["measured"]),
            *(f"    {_assigned(one)}: {one.words}" for one in options),
        ]
    )


def _most(passes: tuple[int, int] | None) -> str:
    if passes is None:
        return ""
    return f" (at most {counted(passes[0], 'forward')} and {counted(passes[1], 'backward')})"


def _measured(found: dict[str, float] | None) -> list[str]:
    """Memory and errors, beside those of the source model; docs/methods.md says on what."""
    if found is None:
        return []
    source, saved = read()["source"]._asdict(), f"{found['state']:,.0f} KiB saved"
    errors = [
        f"{found[stream]:g} {words} (source {source[stream]:g})"
        for stream, words in STREAMS.items()
    ]
    return [
        f"  measured: {found['cost']:g} forward passes, {found['counted']:g} by counting",
        f"  memory: {found['memory']:g} MiB beyond model and batch; {saved}",
        f"  error in percent: {', '.join(errors)}",
    ]


def _assigned(option: Option) -> str:
    return option.name if option.required else f"{option.name} = {option.default!r}"
