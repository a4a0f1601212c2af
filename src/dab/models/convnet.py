"""A small convolutional network with group normalization, for few training images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["ConvNet"]

GROUPS = 8


class ConvNet(nn.Module):
    """Classifies [0, 1] images of 32 x 32 pixels that show one centered object.

    Each image is standardized per channel, so exposure hardly matters. The last layer sees in which
    quarter of the image a feature is, because the parts of a traffic sign have their places.
    Normalization layers are GroupNorm and LayerNorm, and there is no dropout, so train and eval
    mode compute the same.

    Args:
        classes: number of logits.
        width: channels of the first convolution; the next stages have twice and four times as many.

    >>> model = ConvNet(classes=43)
    >>> model(torch.rand(4, 3, 32, 32)).shape, sum(p.numel() for p in model.parameters())
    (torch.Size([4, 43]), 174115)
    """

    FLOOR = 0.05  # added to the deviation of an image: nearly uniform ones are not amplified

    def __init__(self, classes: int, *, width: int = 24) -> None:
        super().__init__()
        features = 4 * width * 2 * 2
        self.features = nn.Sequential(
            *_layer(3, width),
            nn.MaxPool2d(2),
            *_layer(width, 2 * width),
            *_layer(2 * width, 2 * width),
            nn.MaxPool2d(2),
            *_layer(2 * width, 4 * width),
            *_layer(4 * width, 4 * width),
            nn.MaxPool2d(4),
            nn.Flatten(),
            nn.LayerNorm(features),
        )
        self.head = nn.Linear(features, classes)

    def forward(self, images: Tensor) -> Tensor:
        deviation, mean = torch.std_mean(images, dim=(2, 3), keepdim=True)
        logits: Tensor = self.head(self.features((images - mean) / (deviation + self.FLOOR)))
        return logits


def _layer(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
    return [convolution, nn.GroupNorm(GROUPS, outputs), nn.ReLU()]
