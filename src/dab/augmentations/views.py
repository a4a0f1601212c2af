"""The augmentations of the methods: batched, on the images' device, without gradients.

All random numbers come from the given CPU generator; the global generator is not used. Images are
floats in [0, 1] of any size; other values are clipped where colors change. Half precision is
computed in float32. A view has the shape and dtype of the images, which are not modified. Images
that are not RGB skip saturation, hue and gray.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.augmentations.color import (
    autocontrast,
    brightness,
    contrast,
    equalize,
    gamma,
    gray,
    hue,
    posterize,
    saturation,
    solarize,
)
from dab.augmentations.geometry import blur, extend, rotation, shear, warp
from dab.parts.validation import check_images

__all__ = ["augment", "augmix", "mild", "shuffle_patches", "strong", "weak"]

# A color transform and the bounds of its strength, which is drawn uniformly.
Jitter = tuple[Callable[[Tensor, Tensor], Tensor], float, float]

_AUGMENT_JITTER: list[Jitter] = [
    (brightness, 0.6, 1.4),
    (contrast, 0.7, 1.3),
    (saturation, 0.5, 1.5),
    (hue, -0.06, 0.06),
    (gamma, 0.7, 1.3),
]
_STRONG_JITTER: list[Jitter] = [
    (brightness, 0.6, 1.4),
    (contrast, 0.6, 1.4),
    (saturation, 0.6, 1.4),
    (hue, -0.1, 0.1),
]
_NEED_RGB = (saturation, hue)
_WIDEST = 2.0  # sigma of the blur of `strong`, in pixels
_CROP_RATIOS = (3 / 4, 4 / 3)


@torch.no_grad()
def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """The augmentation of CoTTA and RoTTA. Except for the noise, it is drawn once per batch.

    In this order: brightness, contrast, saturation, hue and gamma in random order; rotation by up
    to 15 degrees, scale of 0.9 to 1.1 and a shift of up to 1/8 of each side; a 5 x 5 blur with
    sigma up to 0.5 pixels; a flip with p = 0.5; Gaussian noise with sigma = 0.005.

    The original pads the image by half of its size, shifts by 1/16 of the padded side, and crops
    after the blur. For square images of about 20 pixels or more, that padding is wide enough. Here
    edges repeat without end, which gives the same view from a quarter of the pixels, at any size.

    >>> view = augment(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0))
    >>> view.shape
    torch.Size([4, 3, 32, 32])
    """
    view = _recolored(images, generator)
    height, width = view.shape[2:]
    view = warp(view, _motion(height, width, generator), (height + 4, width + 4))
    view = blur(view, _uniform(0.001, 0.5, 1, generator), size=5)
    if _chance(0.5, 1, generator):
        view = view.flip(-1)
    return view.add_(_noise_like(view, generator), alpha=0.005).clamp_(0, 1).to(images.dtype)


@torch.no_grad()
def mild(images: Tensor, generator: torch.Generator) -> Tensor:
    """ROID's view: `augment` without blur and noise. It is drawn once per batch.

    Images are padded by half of their size, as in the original, but by reflection.

    >>> mild(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    view = _recolored(images, generator)
    height, width = view.shape[2:]
    padded = extend(view, height // 2, width // 2, mode="reflect")
    view = warp(padded, _motion(height, width, generator), (height, width))
    if _chance(0.5, 1, generator):
        view = view.flip(-1)
    return view.clamp_(0, 1).to(images.dtype)


@torch.no_grad()
def weak(images: Tensor, generator: torch.Generator, crop: bool = False) -> Tensor:
    """AdaContrast's weak view: each image is flipped with p = 0.5, and shifted if `crop`.

    The original crops views from images larger than the model's input. Here the shift is by whole
    pixels, a crop of the image padded by 1/8 of each side. The padding repeats the edges, as in
    `augment`: black bars would be a domain shift of their own.

    Args:
        images: (n, channels, height, width).
        generator: draws all random numbers.
        crop: whether to shift; AdaContrast does not on ImageNet-C and CIFAR.

    >>> images = torch.rand(4, 3, 32, 32)
    >>> weak(images, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    view = _prepared(images)
    view = _shifted(view, generator) if crop else view.clone()
    _change(view, _chance(0.5, len(view), generator), _flipped)
    return view.to(images.dtype)


@torch.no_grad()
def strong(images: Tensor, generator: torch.Generator, crop: bool = False) -> Tensor:
    """AdaContrast's strong view, drawn independently for each image.

    In this order: if `crop`, a crop of 20 % to 100 % of the area with an aspect ratio of 3/4 to
    4/3, resized to the full size; with p = 0.8, brightness, contrast and saturation by up to 40 %
    and hue by up to 1/10 of a turn, in random order; gray with p = 0.2; with p = 0.5, a blur with
    sigma 0.1 to 2 pixels, whatever the size of the image; a flip with p = 0.5.

    Args:
        images: (n, channels, height, width) in [0, 1].
        generator: draws all random numbers.
        crop: whether to crop; AdaContrast does not on ImageNet-C and CIFAR.

    >>> strong(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    view = _prepared(images).clamp(0, 1)
    count, channels, height, width = view.shape
    if crop:
        view = warp(view, _crop_boxes(count, height, width, generator))
    _jitter(view, _chance(0.8, count, generator), generator)
    if channels == 3:
        _change(view, _chance(0.2, count, generator), gray)
    sigma = _uniform(0.1, _WIDEST, count, generator)
    _change(view, _chance(0.5, count, generator), _blurred, sigma)
    _change(view, _chance(0.5, count, generator), _flipped)
    return view.clamp_(0, 1).to(images.dtype)


@torch.no_grad()
def augmix(images: Tensor, generator: torch.Generator) -> Tensor:
    """MEMO's view, drawn independently for each image.

    First a crop of 8 % to 100 % of the area, resized to the full size, and a flip with p = 0.5.
    Then three chains of one to three transforms each, mixed with weights from a Dirichlet(1, 1, 1)
    distribution, and that mixture with the crop by a uniform weight. Each transform is one of nine,
    equally likely, with a strength u of 0.1 to 1: autocontrast; equalize; 4 bits per value; values
    above 255 - 25.6 u inverted; rotation by 3 u degrees, shear by 0.03 u or shift by 1/30 u of the
    side, along either axis and in either direction. Angles, shifts and thresholds are rounded down
    as in the original, but what comes in from outside repeats the edges instead of being black.

    >>> augmix(torch.rand(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    base = _prepared(images).clamp(0, 1)
    count, _, height, width = base.shape
    base = warp(base, _crop_boxes(count, height, width, generator, smallest=0.08))
    _change(base, _chance(0.5, count, generator), _flipped)
    # Exponential numbers, divided by their sum, are Dirichlet(1, 1, 1).
    weights = -torch.log1p(-_uniform(0, 1, _CHAINS * count, generator)).view(_CHAINS, count)
    weights /= weights.sum(dim=0)
    chains = base.repeat(_CHAINS, 1, 1, 1)
    lengths = torch.randint(1, _LONGEST + 1, (len(chains),), generator=generator)
    for turn in range(_LONGEST):
        kinds = torch.randint(len(_TRANSFORMS), (len(chains),), generator=generator)
        strength = _uniform(0.1, 1, len(chains), generator)
        signed = torch.where(_chance(0.5, len(chains), generator), strength, -strength)
        for kind, transform in enumerate(_TRANSFORMS):
            _change(chains, (kinds == kind) & (turn < lengths), transform, signed)
    mixed = (chains.view(_CHAINS, *base.shape) * weights.to(base)[:, :, None, None, None]).sum(0)
    share = _uniform(0, 1, count, generator).to(base)[:, None, None, None]
    return torch.lerp(mixed, base, share).clamp_(0, 1).to(images.dtype)


@torch.no_grad()
def shuffle_patches(images: Tensor, per_side: int, generator: torch.Generator) -> Tensor:
    """DeYO's view: the patches of each image in random order, which takes away its shape.

    Images whose sides are not multiples of `per_side` are resized to the next smaller size, and
    back afterward.

    >>> shuffle_patches(torch.rand(4, 3, 32, 32), 4, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    source = _prepared(images)
    count, channels, height, width = source.shape
    rows, columns = (max(1, side // per_side) for side in (height, width))  # of a patch
    view = _resized(source, per_side * rows, per_side * columns)
    grid = view.view(count, channels, per_side, rows, per_side, columns)
    patches = grid.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(count, per_side**2, generator=generator, dtype=torch.float64).argsort()
    patches = patches[torch.arange(count)[:, None], order]
    grid = patches.view(count, per_side, per_side, channels, rows, columns)
    shuffled = grid.permute(0, 3, 1, 4, 2, 5).reshape(view.shape)
    return _resized(shuffled, height, width).to(images.dtype)


def _resized(images: Tensor, height: int, width: int) -> Tensor:
    if images.shape[2:] == (height, width):
        return images
    return F.interpolate(images, (height, width), mode="bilinear")


def _prepared(images: Tensor) -> Tensor:
    """Checks images and makes them contiguous and at least float32, without a copy if possible."""
    check_images(images, None)
    return images.to(torch.promote_types(images.dtype, torch.float32)).contiguous()


def _recolored(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images after the color transforms of `augment`, in random order."""
    view = _prepared(images).clamp(0, 1)
    colors = _applicable(_AUGMENT_JITTER, view)
    for index in torch.randperm(len(colors), generator=generator).tolist():
        color, low, high = colors[index]
        view = color(view, _uniform(low, high, 1, generator))
    return view


def _motion(height: int, width: int, generator: torch.Generator) -> Tensor:
    """Draws the rotation, scale and shift of `augment`, as a matrix for `warp`."""
    shift = torch.stack([_uniform(-s / 8, s / 8, 1, generator) for s in (width, height)], dim=1)
    angle = _uniform(-math.radians(15), math.radians(15), 1, generator)
    return rotation(angle, _uniform(0.9, 1.1, 1, generator), shift)


def _uniform(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)


def _chance(probability: float, count: int, generator: torch.Generator) -> Tensor:
    return _uniform(0, 1, count, generator) < probability


def _noise_like(images: Tensor, generator: torch.Generator) -> Tensor:
    """Draws standard normal noise on the images' device, from a generator seeded by this one."""
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    there = torch.Generator(images.device).manual_seed(seed)
    return torch.randn(images.shape, generator=there, device=images.device, dtype=images.dtype)


def _applicable(jitter: list[Jitter], images: Tensor) -> list[Jitter]:
    rgb = images.shape[1] == 3
    return [change for change in jitter if rgb or change[0] not in _NEED_RGB]


def _change(
    images: Tensor, chosen: Tensor, change: Callable[..., Tensor], *numbers: Tensor
) -> None:
    """Applies `change` to the chosen images in place, with the numbers of each image."""
    rows = chosen.nonzero().flatten()
    if len(rows):
        there = rows.to(images.device)
        images[there] = change(images[there], *(number[rows] for number in numbers))


def _jitter(images: Tensor, chosen: Tensor, generator: torch.Generator) -> None:
    """Applies all color transforms to the chosen images in place, in random order per image."""
    count = len(images)
    colors = _applicable(_STRONG_JITTER, images)
    orders = torch.rand(count, len(colors), generator=generator, dtype=torch.float64).argsort()
    numbers = [_uniform(low, high, count, generator) for _, low, high in colors]
    for turn in orders.unbind(dim=1):
        for index, (color, _, _) in enumerate(colors):
            _change(images, chosen & (turn == index), color, numbers[index])


def _crop_boxes(
    count: int, height: int, width: int, generator: torch.Generator, smallest: float = 0.2
) -> Tensor:
    """Draws matrices for `warp` that enlarge a random part of each image to the full size.

    The aspect ratio is drawn among those for which a crop of the drawn area fits into the image, so
    all areas are equally likely; torchvision redraws both instead. Elongated images, for which no
    ratio of 3/4 to 4/3 fits, get the nearest one that does. Crops may start between two pixels.
    """
    area = _uniform(smallest, 1, count, generator)
    aspect = width / height
    tallest, widest = aspect * area, aspect / area
    low, high = (
        torch.full_like(area, ratio).clamp(tallest, widest).log() for ratio in _CROP_RATIOS
    )
    ratio = torch.lerp(low, high, _uniform(0, 1, count, generator)).exp()
    sides = torch.stack([area * ratio / aspect, area / ratio * aspect], dim=1).sqrt()
    room = torch.tensor([width, height]) * (1 - sides)
    center = room * (torch.rand(count, 2, generator=generator, dtype=torch.float64) - 0.5)
    return torch.cat([torch.diag_embed(sides), center[:, :, None]], dim=2)


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to 1/8 of each side, with its edges repeated."""
    count, _, height, width = images.shape
    rows, columns = height // 8, width // 8
    tops = torch.randint(2 * rows + 1, (count,), generator=generator).tolist()
    lefts = torch.randint(2 * columns + 1, (count,), generator=generator).tolist()
    return torch.stack(
        [
            padded[:, top : top + height, left : left + width]
            for padded, top, left in zip(extend(images, rows, columns), tops, lefts, strict=True)
        ]
    )


def _blurred(images: Tensor, sigma: Tensor) -> Tensor:
    reach = math.ceil(3 * _WIDEST)  # a Gaussian is negligible beyond 3 sigma
    return blur(extend(images, reach, reach), sigma, 2 * reach + 1)


def _flipped(images: Tensor) -> Tensor:
    return images.flip(-1)


# The transforms of `augmix`. Their strength is from -1 to 1; without a direction, its size counts.


def _stretched(images: Tensor, strength: Tensor) -> Tensor:
    return autocontrast(images)


def _equalized(images: Tensor, strength: Tensor) -> Tensor:
    return equalize(images)


def _posterized(images: Tensor, strength: Tensor) -> Tensor:
    return posterize(images, bits=4)


def _solarized(images: Tensor, strength: Tensor) -> Tensor:
    return solarize(images, 256 - (25.6 * strength.abs()).floor())


def _rotated(images: Tensor, strength: Tensor) -> Tensor:
    angle = torch.deg2rad((3 * strength).trunc())
    return warp(images, rotation(angle, torch.ones_like(angle), angle.new_zeros(len(angle), 2)))


def _sheared(images: Tensor, strength: Tensor) -> Tensor:
    return warp(images, shear(0.03 * strength, images.shape[2]))


def _moved(images: Tensor, strength: Tensor) -> Tensor:
    pixels = (images.shape[3] / 30 * strength).trunc()
    angle = torch.zeros_like(pixels)
    shift = torch.stack([pixels, angle], dim=1)
    return warp(images, rotation(angle, torch.ones_like(angle), shift))


def _across(images: Tensor, strength: Tensor, transform: Callable[..., Tensor]) -> Tensor:
    """A transform along the other axis."""
    return transform(images.mT, strength).mT


_CHAINS, _LONGEST = 3, 3
_TRANSFORMS: list[Callable[[Tensor, Tensor], Tensor]] = [
    _stretched,
    _equalized,
    _posterized,
    _solarized,
    _rotated,
    _sheared,
    partial(_across, transform=_sheared),
    _moved,
    partial(_across, transform=_moved),
]
