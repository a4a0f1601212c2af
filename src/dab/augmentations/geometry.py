"""Warping and blurring of batches. Outside of an image, its edge pixels are repeated."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["blur", "extend", "rotation", "shear", "warp"]


def extend(
    images: Tensor, rows: int, columns: int, mode: Literal["replicate", "reflect"] = "replicate"
) -> Tensor:
    """Pads images on each side by repeating their edges, or by reflecting them there."""
    return F.pad(images, (columns, columns, rows, rows), mode=mode)


def rotation(angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Returns matrices (n, 2, 3) for `warp` that rotate, then scale, then shift images.

    Args:
        angle: (n,), in radians, clockwise.
        scale: (n,), above 1 enlarges.
        shift: (n, 2), to the right and down, in pixels.
    """
    # `warp` takes the inverse map, from output pixels to input pixels.
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    linear = torch.stack([cosine, sine, -sine, cosine], dim=1).view(-1, 2, 2)
    return torch.cat([linear, -linear @ shift[:, :, None]], dim=2)


def shear(amount: Tensor, length: int) -> Tensor:
    """Returns matrices (n, 2, 3) for `warp` that move each row by `amount` times its number.

    Args:
        amount: (n,), how far a row moves to the left against the one above it.
        length: of the columns; the top row stays.
    """
    matrix = torch.eye(2, 3, dtype=amount.dtype).repeat(len(amount), 1, 1)
    matrix[:, 0, 1], matrix[:, 0, 2] = amount, amount * length / 2
    return matrix


def warp(images: Tensor, matrix: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Samples images bilinearly, around their center.

    Args:
        images: (n, channels, height, width).
        matrix: (n, 2, 3), or (1, 2, 3) for the whole batch: maps (x, y, 1) of an output pixel to
            (x, y) of the input, in pixels from the center of the image.
        size: height and width of the output; by default those of the images.
    """
    height, width = images.shape[2:]
    rows, columns = size or (height, width)
    # The units of affine_grid and grid_sample are half the sides of the output and the input.
    to_pixels = matrix.new_tensor([columns / 2, rows / 2, 1])
    from_pixels = matrix.new_tensor([[2 / width], [2 / height]])
    halves = (from_pixels * matrix * to_pixels).to(images)
    grid = F.affine_grid(halves, [len(matrix), 1, rows, columns], align_corners=False)
    grid = grid.expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def blur(images: Tensor, sigma: Tensor, size: int) -> Tensor:
    """Gaussian blur with an odd kernel and no padding: every side loses size // 2 pixels.

    Args:
        images: (n, channels, height, width).
        sigma: (n,), or (1,) for the whole batch: the standard deviation in pixels.
        size: of the kernel.
    """
    count, channels, height, width = images.shape
    offsets = torch.arange(size, dtype=sigma.dtype) - size // 2
    kernel = (-0.5 * (offsets / sigma[:, None]) ** 2).softmax(dim=1)
    # Taps too small to change a float32 sum would be denormal numbers, which are slow on CPUs.
    kernel = F.threshold(kernel, 1e-12, 0)
    kernels = kernel.expand(count, -1).repeat_interleave(channels, dim=0).to(images)[:, None]
    # All planes of the batch are channels of one image. On a CPU, that is about ten times faster
    # than a batch of images with few channels, and it allows one kernel per image.
    planes = images.reshape(1, count * channels, height, width)
    for window in (kernels[:, :, None, :], kernels[:, :, :, None]):
        planes = F.conv2d(planes, window, groups=count * channels)
    return planes.view(count, channels, *planes.shape[2:])
