"""Color transforms of images in [0, 1], defined as in torchvision.

Their strength is a vector with one element per image, or with one element for the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["brightness", "contrast", "gamma", "gray", "hue", "saturation"]


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    """Moves strengths to the images' device and shapes them to broadcast."""
    return values.to(images).view(-1, 1, 1, 1)


def gray(images: Tensor) -> Tensor:
    """Returns the luma of RGB images as (n, 1, h, w), or the mean of any other channels."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.chunk(3, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiplies every pixel by the factor.

    >>> brightness(torch.tensor([0.25, 0.75]).view(1, 1, 1, 2), torch.tensor([2.0])).flatten()
    tensor([0.5000, 1.0000])
    """
    return (images * _per_image(factor, images)).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Moves pixels away from (factor > 1) or toward (factor < 1) the mean of the gray image."""
    mean = gray(images).mean(dim=(2, 3), keepdim=True)
    return torch.lerp(mean, images, _per_image(factor, images)).clamp_(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Moves RGB pixels away from (factor > 1) or toward (factor < 1) the gray image."""
    return torch.lerp(gray(images), images, _per_image(factor, images)).clamp_(0, 1)


def gamma(images: Tensor, exponent: Tensor) -> Tensor:
    """Raises every pixel to a positive power."""
    # exp(g log x) takes less than half the time of pow, and exp(-inf) = 0 is right for black.
    return images.clamp(0, 1).log_().mul_(_per_image(exponent, images)).exp_()


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotates the hue of RGB images by a fraction of a full turn: 1/3 turns red into green.

    >>> hue(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1), torch.tensor([1 / 3])).flatten()
    tensor([0., 1., 0.])
    """
    red, green, blue = images.chunk(3, dim=1)
    highest = images.amax(dim=1, keepdim=True)
    chroma = highest - images.amin(dim=1, keepdim=True)
    # Gray pixels have chroma 0, so any finite hue leaves them unchanged.
    divisor = chroma.clamp_min(torch.finfo(images.dtype).tiny)
    sixths = torch.where(
        highest == red,
        (green - blue) / divisor,
        torch.where(highest == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    sixths += 6 * _per_image(turn, images)
    # A channel is below the highest one by the full chroma if its own hue is more than two sixths
    # away, by nothing if it is within one sixth, and linearly in between.
    opposite = torch.tensor([5, 3, 1], device=images.device).view(3, 1, 1)
    below = (sixths + opposite).remainder_(6).sub_(2).abs_().neg_().add_(2).clamp_(0, 1)
    return highest - chroma * below
