"""Nets of this package whose weights are not shipped: `dab/NET@FILE`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import nn

from dab.data.transform import Transform
from dab.models.checkpoints import fill, read
from dab.models.convnet import ConvNet
from dab.models.resnet import ResNet
from dab.models.sources.common import Pretrained, split_origin, unknown

__all__ = ["load"]

BLOCKS = 4
OUTER = {"conv1": "stem", "bn": "norm", "fc": "head"}


def our_name(published: str) -> str:
    """The name of a published weight in our net.

    >>> our_name("layer2.0.bn1.weight"), our_name("fc.bias")
    ('stages.4.norm1.weight', 'head.bias')
    """
    if inner := re.fullmatch(r"layer(\d)\.(\d)\.(.*)", published):
        stage, block, rest = inner.groups()
        return f"stages.{BLOCKS * (int(stage) - 1) + int(block)}.{rest.replace('bn', 'norm')}"
    layer, dot, rest = published.partition(".")
    return f"{OUTER.get(layer, layer)}{dot}{rest}"


class Net(NamedTuple):
    """How to make a net, and the name in it of a weight in the file."""

    create: Callable[[], nn.Module]
    renamed: Callable[[str], str] = str


NETS: Mapping[str, Net] = {
    # That of MEMO for CIFAR-10, with its published weights.
    "resnet26_gn": Net(lambda: ResNet(10, blocks=BLOCKS), our_name),
    # For GTSRB, with the weights of `dab.models.train_gtsrb`.
    "gtsrb_convnet": Net(lambda: ConvNet(43)),
}


def load(name: str) -> Pretrained:
    """Loads `NET@FILE`."""
    named, origin = split_origin(name)
    if named not in NETS:
        raise unknown("dab", named, [*NETS])
    if origin is None:
        raise ValueError(f"dab ships no weights of {named}: use a file with dab/{named}@FILE")
    weights, sha256 = read(Path(origin))
    net = NETS[named].create()
    fill(net, {NETS[named].renamed(key): value for key, value in weights.items()}, origin)
    card = {"name": f"dab/{named}", "tag": "file", "sha256": sha256}
    # The nets normalize images themselves.
    return Pretrained(net, (0.0,) * 3, (1.0,) * 3, Transform(resize=None, crop=32), card)
