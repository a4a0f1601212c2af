"""The tiny nets of `dab.testing`, one with 1000 classes, and one with norms of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dab.data.transform import Transform
from dab.testing.nets import CLASSES, SIZE, TinyViT, conv_net, net, stream

__all__ = ["CLASSES", "SIZE", "OwnNorms", "TinyViT", "conv_net", "imagenet_net", "net", "stream"]


def imagenet_net() -> tuple[nn.Module, Transform]:
    """A tiny net of 1000 classes with its preprocessing, as `dab.load_model` takes it."""
    return net("layernorm", classes=1000), Transform(resize=SIZE, crop=SIZE)


class MyGroupNorm(nn.Module):
    """A norm of somebody's own, called with a keyword."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        return F.group_norm(features, 2, self.weight, self.bias)


class OwnNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3), MyGroupNorm(8)
        self.head = nn.Linear(8, 6)

    def forward(self, images: Tensor) -> Tensor:
        features = self.norm(features=self.first(images))
        return self.head(features.relu().mean(dim=(2, 3)))
