"""A small convolutional network with group normalization, for few training images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ConvNet"]

GROUPS = 8


class ConvNet(nn.Module):
    """Classifies [0, 1] images of 32 x 32 pixels that show one centered object.

    Each image is standardized per channel, so exposure hardly matters. The last layers see where
    in the image a feature is, because the parts of a traffic sign have their places. Normalization
    layers are GroupNorm and LayerNorm, and there is no dropout, so train and eval mode compute the
    same.

    Args:
        classes: number of logits.
        width: channels of the first convolution; the next two have twice and four times as many.
        hidden: features before the last layer.

    >>> model = ConvNet(classes=43)
    >>> model(torch.rand(4, 3, 32, 32)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([4, 43]), 363307)
    """

    FLOOR = 0.05  # added to the deviation of an image: nearly uniform ones are not amplified

    def __init__(self, classes: int, *, width: int = 32, hidden: int = 128) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_layer(3, width, kernel=5, stride=2),
            *_layer(width, 2 * width, stride=2),
            *_layer(2 * width, 4 * width),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * width * 4 * 4, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(images, dim=(2, 3), keepdim=True)
        logits: Tensor = self.head(self.features((images - mean) / (deviation + self.FLOOR)))
        return logits


def _layer(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
    return [convolution, nn.GroupNorm(GROUPS, outputs), nn.ReLU()]
