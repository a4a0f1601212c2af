"""What commands have in common."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

__all__ = ["Commands", "add_stream_options", "at_least", "command", "import_methods"]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Commands,
    name: str,
    description: str,
    examples: str,
    main: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """A parser for a new command that `main` runs."""
    parser = commands.add_parser(
        name,
        help=description,
        description=f"{description[0].upper()}{description[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(main=main)
    return parser


def at_least(least: int) -> Callable[[str], int]:
    """The type of an option that takes whole numbers from `least` on."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        return value

    return number


def add_stream_options(parser: argparse.ArgumentParser) -> None:
    """Where images come from, how they are shown, and where results go."""
    parser.add_argument(
        "--corruptions",
        nargs="+",
        metavar="NAME",
        help="the domains in order, or `held-out` for the four to choose hyper-parameters on "
        "(default: the fifteen of ImageNet-C)",
    )
    parser.add_argument("--severity", type=int, default=5, choices=range(1, 6), help="(default: 5)")
    parser.add_argument("--samples", type=at_least(1), help="only the first images of each domain")
    parser.add_argument("--batch-size", type=at_least(1), default=64, help="(default: 64)")
    parser.add_argument("--root", type=Path, help="folder with the data, where it is not embedded")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        help="folder for the results (default: results)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="folder for corrupted images (default: $DAB_CACHE, or dab in the user's cache)",
    )
    parser.add_argument(
        "--workers",
        type=at_least(0),
        help="processes that make images ahead (default: 1 while there are any to make)",
    )
    parser.add_argument(
        "--threads", type=at_least(1), help="threads of torch (default: torch's choice)"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=at_least(1),
        default=200,
        metavar="BATCHES",
        help="(default: 200)",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="TOOL",
        choices=["tensorboard", "wandb", "mlflow"],
        help="also write for tensorboard, wandb or mlflow, into a folder of that name beside the "
        "results; may be repeated",
    )
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module or .py file with methods of your own",
    )


def import_methods(modules: list[str]) -> None:
    """Import modules by name, or files by path, for the methods that they register."""
    for module in modules:
        _import(module)


def _import(module: str) -> None:
    try:
        if module.endswith(".py"):
            _import_file(module)
        else:
            importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"cannot import {module}: {error}") from error


def _import_file(file: str) -> None:
    # Named by its path: a file called dab.py must not take the place of the package.
    spec = importlib.util.spec_from_file_location(file, file)
    if spec is None or spec.loader is None or not Path(file).exists():
        raise ValueError(f"there is no file {file} to import")
    sys.modules[file] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
