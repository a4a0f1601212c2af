"""Nets of this package whose weights are not shipped: `dab/NET@FILE`."""

from __future__ import annotations

import re
from pathlib import Path

from dab.data.transform import Transform
from dab.models.checkpoints import fill, read
from dab.models.resnet import ResNet
from dab.models.sources.common import Pretrained, split_origin, unknown

__all__ = ["load"]

NET, BLOCKS = "resnet26_gn", 4
OUTER = {"conv1": "stem", "bn": "norm", "fc": "head"}


def load(name: str) -> Pretrained:
    """Loads `resnet26_gn@FILE`, the ResNet-26 of MEMO for CIFAR-10 with its published weights."""
    named, origin = split_origin(name)
    if named != NET:
        raise unknown("dab", named, [NET])
    if origin is None:
        raise ValueError(f"dab ships no weights of {named}: use a file with dab/{named}@FILE")
    weights, sha256 = read(Path(origin))
    net = ResNet(10, blocks=BLOCKS)
    fill(net, {our_name(key): value for key, value in weights.items()}, origin)
    card = {"name": f"dab/{named}", "tag": "file", "sha256": sha256}
    # The net normalizes images itself.
    return Pretrained(net, (0.0,) * 3, (1.0,) * 3, Transform(resize=None, crop=32), card)


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
