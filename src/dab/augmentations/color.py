"""Color transforms of images in [0, 1], defined as in torchvision and Pillow.

Their strength is a vector with one element per image, or with one element for the whole batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "autocontrast",
    "brightness",
    "contrast",
    "equalize",
    "gamma",
    "gray",
    "hue",
    "posterize",
    "saturation",
    "solarize",
]


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


def autocontrast(images: Tensor) -> Tensor:
    """Stretches every channel of every image to [0, 1]; one of a single value stays as it is."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low), images)


def equalize(images: Tensor) -> Tensor:
    """Makes the 256 levels of every channel about equally frequent, as Pillow does."""
    levels = _levels(images)
    planes = levels.flatten(0, 1).flatten(1)
    counts = planes.new_zeros(len(planes), 256).scatter_add_(1, planes, torch.ones_like(planes))
    top = counts.gather(1, planes.amax(dim=1, keepdim=True))
    step = (planes.shape[1] - top) // 255
    before = counts.cumsum(dim=1) - counts
    table = ((step // 2 + before) // step.clamp_min(1)).clamp_max(255)
    equal = table.gather(1, planes).view_as(images)
    kept = (step == 0).view(*images.shape[:2], 1, 1)  # too few pixels for 256 levels
    return torch.where(kept, levels, equal).to(images) / 255


def posterize(images: Tensor, bits: int) -> Tensor:
    """Keeps the highest bits of the 8 of every value.

    >>> posterize(torch.tensor([0.1, 0.9]).view(1, 1, 1, 2), 1).flatten()
    tensor([0.0000, 0.5020])
    """
    lost = 8 - bits
    return (_levels(images) >> lost << lost).to(images) / 255


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Inverts every value from the threshold on; both count in levels of 0 to 255."""
    return torch.where(_levels(images) < _per_image(threshold, images), images, 1 - images)


def _levels(images: Tensor) -> Tensor:
    return (images * 255).round().clamp_(0, 255).long()
