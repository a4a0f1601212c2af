"""The tiny nets of `dab.testing`, and one with 1000 classes."""

from __future__ import annotations

from torch import nn

from dab.data.transform import Transform
from dab.testing.nets import CLASSES, SIZE, TinyViT, conv_net, net, stream

__all__ = ["CLASSES", "SIZE", "TinyViT", "conv_net", "imagenet_net", "net", "stream"]


def imagenet_net() -> tuple[nn.Module, Transform]:
    """A tiny net of 1000 classes with its preprocessing, as `dab.load_model` takes it."""
    return net("layernorm", classes=1000), Transform(resize=SIZE, crop=SIZE)
