"""Speed of the augmentations compared with kornia: `python -m benchmarks.augmentations`.

Milliseconds per batch on one thread, as the median of interleaved rounds, and their ratio: above 1,
dab is faster. "kornia, as published" pads by half and crops as CoTTA does; "kornia, border" uses
the same shortcut as `dab.augmentations.augment`.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import kornia.enhance as enhance
import kornia.filters as filters
import kornia.geometry.transform as transform
import torch
from torch import Tensor

from dab.augmentations import augment, strong, weak
from dab.augmentations.color import brightness, contrast, gamma, hue, saturation
from dab.augmentations.geometry import blur, extend, rotation, warp

BATCHES = ((64, 32), (16, 224))  # images, pixels
ROUNDS = 30


def kornia_augment(images: Tensor, generator: torch.Generator, literal: bool) -> Tensor:
    """`augment` written with kornia, with the same distributions."""

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(1, generator=generator)

    changes: list[Callable[[Tensor], Tensor]] = [
        lambda x: enhance.adjust_contrast(x, draw(0.6, 1.4)),  # kornia's word for brightness
        lambda x: enhance.adjust_contrast_with_mean_subtraction(x, draw(0.7, 1.3)),
        lambda x: enhance.adjust_saturation_with_gray_subtraction(x, draw(0.5, 1.5)),
        lambda x: enhance.adjust_hue(x, 2 * math.pi * draw(-0.06, 0.06)),
        lambda x: enhance.adjust_gamma(x, draw(0.7, 1.3).item()),
    ]
    view = images.clamp(0, 1)
    for index in torch.randperm(5, generator=generator).tolist():
        view = changes[index](view)
    size = images.shape[-1]
    margin = size // 2 if literal else 2
    padded = extend(view, margin, margin)
    center = torch.full((1, 2), (padded.shape[-1] - 1) / 2)
    shift = torch.cat([draw(-size / 8, size / 8), draw(-size / 8, size / 8)])[None]
    zoom = draw(0.9, 1.1).expand(1, 2)
    matrix = transform.get_affine_matrix2d(shift, center, zoom, draw(-15, 15))[:, :2]
    view = transform.warp_affine(
        padded,
        matrix,
        padded.shape[2:],
        padding_mode="zeros" if literal else "border",
        align_corners=False,
    )
    view = filters.gaussian_blur2d(view, 5, draw(0.001, 0.5).expand(1, 2))
    view = view[..., margin : margin + size, margin : margin + size]
    if draw(0, 1) < 0.5:
        view = view.flip(-1)
    return (view + 0.005 * torch.randn(view.shape, generator=generator)).clamp_(0, 1)


def pairs(images: Tensor) -> dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]]:
    """Returns our function and kornia's, by name."""
    ours, theirs = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    count, _, size, _ = images.shape
    number = torch.linspace(0.8, 1.2, count)
    sigma = torch.linspace(0.1, 2, count)
    kernel = max(3, size // 10 | 1)
    angle, zoom, shift = number - 1, number, torch.zeros(count, 2)
    center = torch.full((count, 2), (size - 1) / 2)

    def kornia_warp() -> Tensor:
        matrix = transform.get_affine_matrix2d(
            shift, center, zoom[:, None].expand(-1, 2), angle.rad2deg()
        )
        return transform.warp_affine(
            images, matrix[:, :2], (size, size), padding_mode="border", align_corners=False
        )

    return {
        "augment (kornia, as published)": (
            lambda: augment(images, ours),
            lambda: kornia_augment(images, theirs, literal=True),
        ),
        "augment (kornia, border)": (
            lambda: augment(images, ours),
            lambda: kornia_augment(images, theirs, literal=False),
        ),
        "brightness": (
            lambda: brightness(images, number),
            lambda: enhance.adjust_contrast(images, number),
        ),
        "contrast": (
            lambda: contrast(images, number),
            lambda: enhance.adjust_contrast_with_mean_subtraction(images, number),
        ),
        "saturation": (
            lambda: saturation(images, number),
            lambda: enhance.adjust_saturation_with_gray_subtraction(images, number),
        ),
        "hue": (
            lambda: hue(images, number - 1),
            lambda: enhance.adjust_hue(images, 2 * math.pi * (number - 1)),
        ),
        "gamma": (lambda: gamma(images, number), lambda: enhance.adjust_gamma(images, number)),
        "affine": (lambda: warp(images, rotation(angle, zoom, shift)), kornia_warp),
        f"blur {kernel} x {kernel}": (
            lambda: blur(extend(images, kernel // 2, kernel // 2), sigma, kernel),
            lambda: filters.gaussian_blur2d(
                images, kernel, sigma[:, None].expand(-1, 2), border_type="replicate"
            ),
        ),
    }


def milliseconds(*works: Callable[[], Tensor]) -> list[float]:
    """Returns the median time of each, measured in turns after a warm-up call."""
    for work in works:
        work()
    rounds = []
    for _ in range(ROUNDS):
        marks = [time.perf_counter()]
        for work in works:
            work()
            marks.append(time.perf_counter())
        rounds.append([1e3 * (end - start) for start, end in pairwise(marks)])
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    for count, size in BATCHES:
        images = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))
        heading = f"{count} images of {size} x {size}"
        print(f"\n{heading:<32}{'torch ms':>12}{'kornia ms':>12}{'ratio':>8}")
        for name, (ours, theirs) in pairs(images).items():
            mine, other = milliseconds(ours, theirs)
            print(f"{name:<32}{mine:>12.2f}{other:>12.2f}{other / mine:>8.2f}")
        generator = torch.Generator().manual_seed(0)
        for view in (weak, strong):
            (mine,) = milliseconds(partial(view, images, generator, crop=True))
            print(f"{view.__name__:<32}{mine:>12.2f}")


if __name__ == "__main__":
    main()
