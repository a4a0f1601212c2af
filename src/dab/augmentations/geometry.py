"""Warping and blurring of batches; whatever lies outside of an image continues its edge."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["blur", "extend", "rotation", "warp"]


def extend(images: Tensor, rows: int, columns: int) -> Tensor:
    """The images with their edges repeated by so many rows and columns on each side."""
    return F.pad(images, (columns, columns, rows, rows), mode="replicate")


def rotation(angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Matrices (n, 2, 3) for `warp` that turn, then scale, then shift the picture.

    Args:
        angle: in radians, clockwise as seen, (n,).
        scale: above 1 enlarges, (n,).
        shift: to the right and downwards, in pixels, (n, 2).
    """
    # Where an output pixel comes from is the inverse of where the picture goes to.
    cosine, sine = angle.cos() / scale, angle.sin() / scale
    linear = torch.stack([cosine, sine, -sine, cosine], dim=1).view(-1, 2, 2)
    return torch.cat([linear, -linear @ shift[:, :, None]], dim=2)


def warp(images: Tensor, matrix: Tensor, margin: int = 0) -> Tensor:
    """Bilinear samples of the images, with `margin` pixels more on every side.

    Args:
        images: (n, channels, height, width).
        matrix: (n, 2, 3), or (1, 2, 3) for the whole batch: from the (x, y, 1) of an output pixel
            to the (x, y) it is read from, in pixels from the center of the image.
        margin: of the output.
    """
    height, width = images.shape[2:]
    rows, columns = height + 2 * margin, width + 2 * margin
    # affine_grid and grid_sample measure in halves of the output and of the image.
    to_pixels = matrix.new_tensor([columns / 2, rows / 2, 1])
    from_pixels = matrix.new_tensor([[2 / width], [2 / height]])
    halves = (from_pixels * matrix * to_pixels).to(images)
    grid = F.affine_grid(halves, [len(matrix), 1, rows, columns], align_corners=False)
    grid = grid.expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def blur(images: Tensor, sigma: Tensor, size: int) -> Tensor:
    """Gaussian blur with an odd kernel that stays inside: size // 2 pixels go on every side.

    Args:
        images: (n, channels, height, width).
        sigma: standard deviation in pixels, (n,), or (1,) for the whole batch.
        size: of the kernel.
    """
    count, channels, height, width = images.shape
    offsets = torch.arange(size, dtype=sigma.dtype) - size // 2
    kernel = (-0.5 * (offsets / sigma[:, None]) ** 2).softmax(dim=1)
    # Taps that no float32 sum can notice would become denormal numbers, which slow down a CPU.
    kernel = F.threshold(kernel, 1e-12, 0)
    kernels = kernel.expand(count, -1).repeat_interleave(channels, dim=0).to(images)[:, None]
    # All planes of the batch as channels of one image: on CPU that is about ten times faster than
    # a batch of images with few channels, and it lets every image have its own kernel.
    planes = images.reshape(1, count * channels, height, width)
    for window in (kernels[:, :, None, :], kernels[:, :, :, None]):
        planes = F.conv2d(planes, window, groups=count * channels)
    return planes.view(count, channels, *planes.shape[2:])
