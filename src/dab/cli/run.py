"""`dab run`: one method over one stream."""

from __future__ import annotations

import argparse

from dab.cli.options import DATA_HELP, Commands, add_stream_options, at_least, command

__all__ = ["add", "main"]

EXAMPLES = """examples:
  dab run tent --setting correlated
  dab run dab capacity=256 lr=4e-3 --setting correlated --seed 1
  dab run dab capacity=256 --data cifar10 --setting correlated:0.1
  dab run dab --data folder --root photos --model timm/vit_tiny_patch16_224
  dab run mine --import my_method.py --corruptions gaussian_noise fog --samples 2000

A run that was stopped or killed goes on when started again. Method names and their options:
dab methods.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "run", "run one method over one stream", EXAMPLES, main)
    parser.add_argument("method", help="name of the method")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE", help="options of the method")
    parser.add_argument("--data", default="glyphs", help=f"(default: glyphs) {DATA_HELP}")
    parser.add_argument(
        "--setting",
        default="continual",
        help="continual (default), correlated, correlated:DELTA, mixed, gradual, reset_each_shift; "
        "the last three also with +correlated",
    )
    parser.add_argument("--seed", type=at_least(0), default=0)
    add_stream_options(parser)


def main(chosen: argparse.Namespace) -> int:
    from dab.cli.bench import execute

    chosen.method = [" ".join([chosen.method, *chosen.options])]
    chosen.data, chosen.setting, chosen.seeds = [chosen.data], [chosen.setting], [chosen.seed]
    chosen.engine, chosen.jobs, chosen.address = "local", 1, None
    chosen.gpus_per_run, chosen.slurm, chosen.shard_streams = None, [], [None]
    chosen.suite = None
    return execute(chosen, domains=True)
