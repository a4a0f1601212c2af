"""What commands have in common."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dab.cli.parser import Help
from dab.streams.setting import SYNTAX
from dab.utils.files import Location, location
from dab.utils.imports import import_own

if TYPE_CHECKING:
    from dab.streams import Shard

__all__ = [
    "DATA_HELP",
    "SETTING_HELP",
    "Commands",
    "add_imports",
    "add_json",
    "add_run_options",
    "add_stream_options",
    "at_least",
    "command",
    "folder_or_url",
    "import_modules",
]

DATA_HELP = (
    '(default: glyphs). A data set\'s own options follow its name: "NAME OPTION=VALUE". Available'
)
SETTING_HELP = f"{SYNTAX} (default: correlated)"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Commands,
    name: str,
    description: str,
    examples: str,
    main: Callable[[argparse.Namespace], int] | None = None,
) -> argparse.ArgumentParser:
    """A parser for a new command that `main` runs, unless it has commands of its own."""
    parser = commands.add_parser(
        name,
        help=description,
        description=f"{description[0].upper()}{description[1:]}.",
        epilog=examples,
        formatter_class=Help,
    )
    if main is not None:
        parser.set_defaults(main=main)
    return parser


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes integers from `least` to `most`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {value}")
        return value

    return number


def folder_or_url(text: str) -> Location:
    """For argparse: the location of results."""
    try:
        return location(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def pieces(text: str) -> list[Shard]:
    """For argparse: the pieces of a stream."""
    from dab.streams import Shard

    try:
        return Shard.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def share(text: str) -> float:
    """For argparse: a number that is not negative."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {text}")
    return value


def parameter(text: str) -> tuple[str, Any]:
    """For argparse: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    return name, int(value) if value.isdecimal() else value


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def add_imports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or .py file that registers your own methods, output corrections, data sets, "
        "suites, engines or loggers; may be repeated",
    )


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """What the streams show, and what runs compute on. Options that are not given are None."""
    group = parser.add_argument_group("streams")
    group.add_argument(
        "--corruptions",
        nargs="+",
        metavar="NAME",
        help="the domains in order, or `held-out` for the four reserved for tuning (default: the "
        "fifteen of ImageNet-C)",
    )
    group.add_argument("--severity", type=int, choices=range(1, 6), help="(default: 5)")
    group.add_argument("--samples", type=at_least(1), help="images per domain (default: all)")
    group.add_argument("--batch-size", type=at_least(1), help="images per call (default: 64)")
    group.add_argument("--root", type=Path, help="folder of the data")
    group.add_argument(
        "--model",
        help="torchvision/NAME or timm/NAME, both also with @WEIGHTS_FILE; hf/NAME; or "
        "MODULE:FUNCTION (default: the data set's own; see `dab data list`)",
    )
    group.add_argument(
        "--partial",
        action="store_true",
        default=None,
        help="accept a data set on disk that is incomplete",
    )
    group.add_argument(
        "--source-images",
        type=Path,
        metavar="FOLDER",
        help="training images of the model, stored as CLASS/IMAGE, for methods that use "
        "them; for data on disk",
    )
    compute = parser.add_argument_group("compute")
    compute.add_argument("--device", help="cpu (default), cuda, cuda:1 or mps")
    compute.add_argument(
        "--precision",
        choices=["fp32", "bf16"],
        help="of matrix products and convolutions (default: fp32)",
    )
    compute.add_argument(
        "--compile", action="store_true", default=None, help="compile the model with torch.compile"
    )
    compute.add_argument(
        "--threads",
        type=at_least(1),
        help="torch threads per run; they change the last bits of results (default: 1)",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Where results go, and how runs execute. They do not change any result."""
    group = parser.add_argument_group("runs")
    group.add_argument(
        "--out",
        type=folder_or_url,
        default=Path("results"),
        help="folder for the results, or a URL like s3://bucket/results (default: results)",
    )
    group.add_argument(
        "--cache",
        type=Path,
        help="folder for corrupted images (default: $DAB_CACHE, or dab in the user's cache)",
    )
    group.add_argument(
        "--workers",
        type=at_least(0),
        help="processes per run that prefetch images (default: 1 if images must be generated, "
        "else 0)",
    )
    group.add_argument(
        "--checkpoint-every",
        type=at_least(1),
        default=200,
        metavar="BATCHES",
        help="(default: 200)",
    )
    group.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="LOGGER",
        help="also log to another tool, which writes to OUT/LOGGER; may be repeated. Available",
    )
    add_imports(parser)
    add_json(parser)


def import_modules(modules: list[str]) -> None:
    """Import modules by name, or files by path, for what they register."""
    for module in modules:
        import_own(module)
