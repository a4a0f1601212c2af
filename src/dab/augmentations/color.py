"""Changes of color, as torchvision defines them: images in [0, 1] and a number for each of them.

The numbers are a vector with one element per image, or a single one for the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["brightness", "contrast", "gamma", "gray", "hue", "saturation"]


def _per_image(values: Tensor, images: Tensor) -> Tensor:
    """The drawn numbers on the images' device, to be broadcast over channels and pixels."""
    return values.to(images).view(-1, 1, 1, 1)


def gray(images: Tensor) -> Tensor:
    """Luma of RGB images, (n, 1, h, w); for any other number of channels their mean."""
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    red, green, blue = images.chunk(3, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Every pixel times the factor.

    >>> brightness(torch.tensor([0.25, 0.75]).view(1, 1, 1, 2), torch.tensor([2.0])).flatten()
    tensor([0.5000, 1.0000])
    """
    return (images * _per_image(factor, images)).clamp_(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Away from (factor > 1) or towards (factor < 1) the mean of the gray image."""
    mean = gray(images).mean(dim=(2, 3), keepdim=True)
    return torch.lerp(mean, images, _per_image(factor, images)).clamp_(0, 1)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Away from (factor > 1) or towards (factor < 1) the gray image; for RGB."""
    return torch.lerp(gray(images), images, _per_image(factor, images)).clamp_(0, 1)


def gamma(images: Tensor, exponent: Tensor) -> Tensor:
    """Every pixel to the power of a positive exponent."""
    # exp(g log x) takes less than half of the time of pow, and exp(-inf) is the 0 that black needs.
    return images.clamp(0, 1).log_().mul_(_per_image(exponent, images)).exp_()


def hue(images: Tensor, turn: Tensor) -> Tensor:
    """The hue of RGB images moved by a part of a whole turn: 1/3 makes red green.

    >>> hue(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1), torch.tensor([1 / 3])).flatten()
    tensor([0., 1., 0.])
    """
    red, green, blue = images.chunk(3, dim=1)
    highest = images.amax(dim=1, keepdim=True)
    chroma = highest - images.amin(dim=1, keepdim=True)
    # Gray pixels have no hue: with chroma 0 any finite one gives them back unchanged.
    divisor = chroma.clamp_min(torch.finfo(images.dtype).tiny)
    sixths = torch.where(
        highest == red,
        (green - blue) / divisor,
        torch.where(highest == green, (blue - red) / divisor + 2, (red - green) / divisor + 4),
    )
    sixths += 6 * _per_image(turn, images)
    # A channel lies below the highest by the whole chroma while its own hue is more than two
    # sixths away, by nothing within one sixth, and by a linear part of it in between.
    opposite = torch.tensor([5, 3, 1], device=images.device).view(3, 1, 1)
    below = (sixths + opposite).remainder_(6).sub_(2).abs_().neg_().add_(2).clamp_(0, 1)
    return highest - chroma * below
