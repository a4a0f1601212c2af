"""A small vision transformer: a convolutional stem, then pre-norm blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["StemNorm", "ViT"]

StemNorm = Literal["pixel", "grid"]


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        n, length, width = tokens.shape
        qkv = self.qkv(tokens).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return out


class Block(nn.Module):
    """Attention between tokens, then an MLP per token, both residual."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens))
        out: Tensor = tokens + self.mlp(self.norm2(tokens))
        return out


class PixelNorm(nn.LayerNorm):
    """LayerNorm over the channels of each pixel, as in ConvNeXt."""

    def forward(self, grid: Tensor) -> Tensor:
        return super().forward(grid.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class GridNorm(nn.LayerNorm):
    """LayerNorm over all channels and pixels of an image, with one scale and shift per channel.

    Also known as GroupNorm with one group.
    """

    def forward(self, grid: Tensor) -> Tensor:
        whole = F.layer_norm(grid, grid.shape[1:], eps=self.eps)
        return whole * self.weight[:, None, None] + self.bias[:, None, None]


NORMS: Mapping[StemNorm, type[nn.LayerNorm]] = {"pixel": PixelNorm, "grid": GridNorm}


def _stem(channels: Sequence[int], width: int, norm: StemNorm) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
            NORMS[norm](outputs),
            nn.GELU(),
        ]
    return nn.Sequential(*layers, nn.Conv2d(channels[-1], width, 3, stride=2, padding=1))


class ViT(nn.Module):
    """Classifies [0, 1] images of 32 x 32 pixels. The model normalizes them itself.

    Each convolution of the stem halves the grid; the pixels of the last grid are the tokens. A
    convolutional stem learns in a few epochs what a transformer on raw patches needs hundreds for.
    All normalization layers are LayerNorm and there is no dropout, so train and eval mode compute
    the same.

    Args:
        classes: number of logits.
        width: of a token.
        depth: number of blocks.
        heads: of the attention; a divisor of width.
        hidden: width of the MLPs.
        stem: channels of the convolutions before the last one, which makes the tokens.
        stem_norm: LayerNorm after each of these, over the channels of each "pixel" or over the
            whole "grid". "pixel" amplifies flat regions as much as strokes: trained on clean
            glyphs, which have large flat regions, it fails under noise (96 to 98 % error).
        mean: of the training images, per channel.
        std: of the training images, per channel.

    >>> model = ViT(classes=10, width=32, depth=1, heads=2, hidden=64, stem=(8, 16))
    >>> model(torch.rand(4, 3, 32, 32)).shape
    torch.Size([4, 10])
    """

    IMAGE_SIZE = 32

    def __init__(
        self,
        classes: int,
        *,
        width: int = 128,
        depth: int = 4,
        heads: int = 4,
        hidden: int = 256,
        stem: Sequence[int] = (32, 64),
        stem_norm: StemNorm = "grid",
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.25, 0.25, 0.25),
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1))
        self.stem = _stem((3, *stem), width, stem_norm)
        self.position = nn.Parameter(
            torch.zeros((self.IMAGE_SIZE // 2 ** (len(stem) + 1)) ** 2, width)
        )
        nn.init.trunc_normal_(self.position, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        grid = self.stem((images - self.mean) / self.std)
        tokens = grid.flatten(2).transpose(1, 2) + self.position
        pooled = self.norm(self.blocks(tokens)).mean(dim=1)
        logits: Tensor = self.head(pooled)
        return logits
