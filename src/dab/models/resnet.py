"""A small pre-activation ResNet for 32 x 32 images, with group or batch normalization."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Norm", "ResNet"]

Norm = Literal["group", "batch"]

GROUPS = 8


class ResNet(nn.Module):
    """Three stages of pre-activation basic blocks, for [0, 1] images.

    Args:
        classes: number of classes.
        blocks: blocks per stage; 4 is the ResNet-26 of test-time training and MEMO.
        width: channels of the first stage; each further stage has twice as many.
        norm: "group" (groups of 8) or "batch".

    >>> import torch
    >>> ResNet(10, blocks=4)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, classes: int, *, blocks: int = 4, width: int = 16, norm: Norm = "group"
    ) -> None:
        super().__init__()
        make = partial(nn.GroupNorm, GROUPS) if norm == "group" else nn.BatchNorm2d
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stages = nn.Sequential()
        channels = width
        for stage in range(3):
            out = width * 2**stage
            for block in range(blocks):
                self.stages.append(Block(channels, out, 2 if stage and not block else 1, make))
                channels = out
        self.norm = make(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem((images - 0.5) / 0.5))
        pooled = F.relu(self.norm(x)).mean(dim=(2, 3))
        logits: Tensor = self.head(pooled)
        return logits


class Block(nn.Module):
    """Norm, ReLU, convolution, twice; plus the input, pooled and zero-padded where sizes change."""

    def __init__(self, channels: int, out: int, stride: int, norm: type | partial) -> None:  # type: ignore[type-arg]
        super().__init__()
        self.stride, self.new_channels = stride, out - channels
        self.norm1 = norm(channels)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm2 = norm(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv1(F.relu(self.norm1(x)))
        y = self.conv2(F.relu(self.norm2(y)))
        if self.stride > 1:
            x = F.avg_pool2d(x, self.stride)
        added: Tensor = y + F.pad(x, (0, 0, 0, 0, 0, self.new_channels))
        return added
