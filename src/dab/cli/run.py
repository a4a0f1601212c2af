"""`dab run`: one method over one stream."""

from __future__ import annotations

import argparse

from dab.cli.execution import changed, execute
from dab.cli.options import (
    DATA_HELP,
    SETTING_HELP,
    Commands,
    add_run_options,
    add_stream_options,
    at_least,
    command,
    import_modules,
)

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab run tent
  dab run dab capacity=256 lr=4e-3 --seed 1 --samples 1000
  dab run dab capacity=256 --data cifar10 --setting correlated:0.1
  dab run dab --data folder --root photos --model timm/vit_tiny_patch16_224
  dab run mine --import my_method.py --corruptions gaussian_noise fog --samples 2000

`dab methods` lists all methods with their options. The source model runs first, for comparison.
Rerun the same command to resume a run that was interrupted.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "run", "run one method over one stream", EXAMPLES, main)
    parser.add_argument("name", metavar="method", help="name of the method")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="options of the method")
    parser.add_argument("--data", nargs=1, help=f"data set {DATA_HELP}")
    parser.add_argument("--setting", nargs=1, help=SETTING_HELP)
    parser.add_argument(
        "--seed", dest="seeds", nargs=1, type=at_least(0), metavar="SEED", help="(default: 0)"
    )
    add_stream_options(parser)
    add_run_options(parser)


def main(chosen: argparse.Namespace) -> int:
    from dab.benchmark import Grid

    import_modules(chosen.imports)
    method = " ".join([chosen.name, *chosen.options])
    return execute(changed(Grid([method]), chosen), chosen, domains=True)
