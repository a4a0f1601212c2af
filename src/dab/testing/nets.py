"""Tiny classifiers, one per kind of normalization layer, and a tiny stream of images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["CLASSES", "NETS", "SIZE", "TinyViT", "conv_net", "net", "stream"]

CLASSES = 6
SIZE = 8  # height and width of an image
NETS = ("layernorm", "groupnorm", "batchnorm")


class Block(nn.Module):
    """A transformer block: attention and a small MLP, each after a LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=2, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm1(tokens)
        tokens = tokens + self.attention(x, x, x, need_weights=False)[0]
        mixed: Tensor = tokens + self.mlp(self.norm2(tokens))
        return mixed


class TinyViT(nn.Module):
    """A small vision transformer: patches, dropout, blocks, mean over tokens, a linear head."""

    def __init__(self, classes: int, width: int = 12, patch: int = 4, blocks: int = 1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.dropout = nn.Dropout(0.5)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.norm(self.blocks(self.dropout(tokens))).mean(dim=1))
        return logits


def conv_net(norm: type[nn.Module] | None, classes: int) -> nn.Sequential:
    """Two convolutions, each before a normalization layer of this type, and a linear head."""

    def normalize(width: int) -> nn.Module:
        if norm is None:
            return nn.Identity()
        return nn.GroupNorm(2, width) if norm is nn.GroupNorm else norm(width)

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        normalize(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        normalize(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def net(kind: str, classes: int = CLASSES) -> nn.Module:
    """A tiny net of one of the kinds in `NETS`, or "none" for no normalization layers.

    Equal calls return equal weights and leave the global random generator as it was.

    >>> net("layernorm")(stream()[0]).shape
    torch.Size([8, 6])
    """
    with torch.random.fork_rng():
        torch.manual_seed(7)
        norms = {"groupnorm": nn.GroupNorm, "batchnorm": nn.BatchNorm2d, "none": None}
        model = TinyViT(classes) if kind == "layernorm" else conv_net(norms[kind], classes)
        *_, head = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and "norm" in name:
                nn.init.normal_(parameter, 0.5, 0.1)  # as after training, not all one or zero
        # An untrained head is uncertain about everything; methods need certain images too.
        nn.init.normal_(head.weight, std=4.0)
        if kind == "batchnorm":
            for _ in range(30):  # source statistics
                model(torch.rand(64, 3, SIZE, SIZE) * torch.rand(64, 3, 1, 1))
        return model.train()


def stream(
    sizes: tuple[int, ...] = (8, 8, 8, 5, 1, 8, 8, 3, 8, 8),
    seed: int = 0,
    size: int = SIZE,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Batches of images with 8-bit values in [0, 1] whose colors and textures differ.

    >>> [len(images) for images in stream()]
    [8, 8, 8, 5, 1, 8, 8, 3, 8, 8]
    """
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for n in sizes:
        color = torch.rand(n, 3, 1, 1, generator=generator)
        texture = torch.rand(n, 3, size, size, generator=generator)
        mixed = color + 0.7 * (texture - 0.5)
        batches.append((mixed.clamp(0, 1) * 255).round().div(255).to(dtype))
    return batches
