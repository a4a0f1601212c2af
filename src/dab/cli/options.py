"""What commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from dab.utils.files import Location, location
from dab.utils.imports import import_own

__all__ = [
    "DATA_HELP",
    "DATA_ON_DISK",
    "Commands",
    "add_stream_options",
    "at_least",
    "command",
    "folder_or_url",
    "import_methods",
]

DATA_ON_DISK = ("imagenet-c", "imagenet-r", "imagenet-sketch", "imagenet-d109", "folder")
DATA_HELP = f"glyphs, cifar10; on disk, with --root: {', '.join(DATA_ON_DISK)} (CLASS/IMAGE)"

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Commands,
    name: str,
    description: str,
    examples: str,
    main: Callable[[argparse.Namespace], int] | None = None,
) -> argparse.ArgumentParser:
    """A parser for a new command that `main` runs, or else one of its own commands."""
    parser = commands.add_parser(
        name,
        help=description,
        description=f"{description[0].upper()}{description[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if main is not None:
        parser.set_defaults(main=main)
    return parser


def at_least(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes whole numbers from `least` on, and up to `most` if given."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
        if most is not None and value > most:
            raise argparse.ArgumentTypeError(f"must be at most {most}, got {value}")
        return value

    return number


def folder_or_url(text: str) -> Location:
    """For argparse: where results lie."""
    try:
        return location(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
    parser.add_argument("--samples", type=at_least(1), help="only so many images of each domain")
    parser.add_argument("--batch-size", type=at_least(1), default=64, help="(default: 64)")
    parser.add_argument("--root", type=Path, help="folder with the data, where it is not embedded")
    parser.add_argument(
        "--model",
        help="torchvision/NAME, timm/NAME, hf/NAME, each also with @WEIGHTS_FILE, or "
        "MODULE:FUNCTION (default: the one that goes with the data; torchvision/vit_b_16 for "
        "data on disk)",
    )
    parser.add_argument(
        "--partial",
        action="store_true",
        help="take data on disk though they are not all that was published",
    )
    parser.add_argument(
        "--image-list",
        type=Path,
        metavar="FILE",
        help="the images of ImageNet-C to show unless correlated, WNID/NAME a line (default: "
        "RobustBench's 5,000, from its package); correlated streams show all",
    )
    parser.add_argument(
        "--source-images",
        type=Path,
        metavar="FOLDER",
        help="images as the model was trained on, CLASS/IMAGE, for methods that need some (EATA); "
        "for data on disk",
    )
    parser.add_argument(
        "--out",
        type=folder_or_url,
        default=Path("results"),
        help="folder for the results, or a URL like s3://bucket/results (default: results)",
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
        "--threads",
        type=at_least(1),
        default=1,
        help="of torch in each run; figures depend on it in their last bits (default: 1)",
    )
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16", "fp16"],
        help="of products and convolutions (default: fp32)",
    )
    parser.add_argument("--compile", action="store_true", help="let torch compile the model")
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
        help="also log to tensorboard, wandb, mlflow or a logger of your own, into a folder of "
        "that name beside the results; may be repeated",
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
        import_own(module)
