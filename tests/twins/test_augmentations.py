"""The views against slow twins: loops over pixels, Python's colorsys, and kornia."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable
from functools import partial

import kornia.color
import kornia.enhance
import kornia.filters
import kornia.geometry.transform
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch import Tensor

from dab.augmentations import augment, augmix, mild, strong, weak
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
from dab.augmentations.geometry import blur, extend, rotation, warp
from dab.augmentations.views import _TRANSFORMS, _crop_boxes

View = Callable[[Tensor, torch.Generator], Tensor]
VIEWS = [augment, augmix, mild, weak, partial(weak, crop=True), strong, partial(strong, crop=True)]
SIZES = [(1, 1), (2, 3), (8, 8), (32, 32), (33, 47)]

seeds = st.integers(0, 2**32 - 1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Images with black, white, gray and pure colors among their pixels."""
    images = torch.rand(shape, generator=seeded(seed), dtype=torch.float64)
    plain = torch.rand(shape[0], 1, *shape[2:], generator=seeded(seed + 1))
    images = torch.where(plain < 0.2, images[:, :1], images)
    return torch.where((plain > 0.2) & (plain < 0.5), images.round(), images).to(dtype)


def numbers(seed: int, count: int, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=seeded(seed), dtype=torch.float64)


# Colors


@pytest.mark.parametrize(
    ("ours", "theirs", "low", "high"),
    [
        (brightness, kornia.enhance.adjust_contrast, 0, 2),  # kornia's word for it
        (contrast, kornia.enhance.adjust_contrast_with_mean_subtraction, 0, 2),
        (saturation, kornia.enhance.adjust_saturation_with_gray_subtraction, 0, 2),
        (gamma, kornia.enhance.adjust_gamma, 0.1, 3),
        (hue, lambda x, turn: kornia.enhance.adjust_hue(x, 2 * math.pi * turn), -1, 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_colors_are_kornias(
    ours: View, theirs: View, low: float, high: float, dtype: torch.dtype, seed: int
) -> None:
    images = random_images(seed, 4, 3, 5, 7, dtype=dtype)
    for count in (4, 1):  # a number for each image, or one for all
        number = numbers(seed, count, low, high)
        found = ours(images, number)
        expected = theirs(images, number.expand(4).to(dtype))
        assert found.dtype == dtype
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_gamma_takes_negative_pixels_for_black() -> None:
    images = torch.tensor([-2.0, -0.0, 0.0, 0.25, 1.0]).view(1, 1, 1, 5)
    found = gamma(images, torch.tensor([0.5])).flatten()
    torch.testing.assert_close(found, torch.tensor([0, 0, 0, 0.5, 1]))


@given(seed=seeds)
@settings(max_examples=20, deadline=None)
def test_hue_turns_every_pixel_as_colorsys_does(seed: int) -> None:
    images, turns = random_images(seed, 2, 3, 4, 3), numbers(seed, 2, -0.5, 0.5)
    expected = images.clone()
    for image, turn in zip(expected, turns.tolist(), strict=True):
        for y in range(4):
            for x in range(3):
                angle, saturated, value = colorsys.rgb_to_hsv(*image[:, y, x].tolist())
                image[:, y, x] = torch.tensor(
                    colorsys.hsv_to_rgb((angle + turn) % 1, saturated, value)
                )
    torch.testing.assert_close(hue(images, turns), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_gray_and_contrast_for_any_number_of_channels(channels: int) -> None:
    images, factors = random_images(3, 2, channels, 3, 4), torch.tensor([0.5, 1.6])
    weights = [0.299, 0.587, 0.114] if channels == 3 else [1 / channels] * channels
    for index in range(2):
        luma = torch.zeros(3, 4, dtype=torch.float64)
        for channel in range(channels):
            luma += weights[channel] * images[index, channel]
        factor = factors[index].item()
        expected = factor * images[index] + (1 - factor) * luma.sum() / 12
        torch.testing.assert_close(gray(images)[index, 0], luma)
        torch.testing.assert_close(contrast(images, factors)[index], expected.clamp(0, 1))


# Geometry


def slow_sample(image: Tensor, y: float, x: float) -> Tensor:
    """A bilinear sample at row y and column x of an image whose edges continue without end."""
    height, width = image.shape[1:]
    top, left = math.floor(y), math.floor(x)
    total = torch.zeros(image.shape[0], dtype=image.dtype)
    for row, row_share in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, column_share in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = image[:, min(max(row, 0), height - 1), min(max(column, 0), width - 1)]
            total += row_share * column_share * inside
    return total


def slow_warp(image: Tensor, matrix: list[list[float]], margin: int = 0) -> Tensor:
    channels, height, width = image.shape
    warped = torch.zeros(channels, height + 2 * margin, width + 2 * margin, dtype=image.dtype)
    for row in range(height + 2 * margin):
        for column in range(width + 2 * margin):
            x, y = column - margin - (width - 1) / 2, row - margin - (height - 1) / 2
            source_x, source_y = (a * x + b * y + c for a, b, c in matrix)
            warped[:, row, column] = slow_sample(
                image, source_y + (height - 1) / 2, source_x + (width - 1) / 2
            )
    return warped


@given(
    seed=seeds,
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    margin=st.integers(0, 2),
    shared=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_warp_samples_like_loops(
    seed: int, height: int, width: int, margin: int, shared: bool
) -> None:
    images = random_images(seed, 2, 3, height, width)
    matrix = 2 * torch.randn(1 if shared else 2, 2, 3, generator=seeded(seed), dtype=torch.float64)
    found = warp(images, matrix, (height + 2 * margin, width + 2 * margin))
    for index in range(2):
        expected = slow_warp(images[index], matrix.expand(2, 2, 3)[index].tolist(), margin)
        torch.testing.assert_close(found[index], expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, (32, 32)), (torch.float64, (33, 47))])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_rotation_scale_and_shift_are_kornias(
    dtype: torch.dtype, size: tuple[int, int], seed: int
) -> None:
    height, width = size
    # A smooth image: a jump of the colors from pixel to pixel multiplies the rounding of where.
    images = F.interpolate(random_images(seed, 3, 3, 4, 4, dtype=dtype), size, mode="bilinear")
    angle, scale = numbers(seed, 3, -1, 1), numbers(seed + 1, 3, 0.5, 2)
    shift = numbers(seed + 2, 6, -5, 5).view(3, 2)
    center = torch.tensor([[(width - 1) / 2, (height - 1) / 2]], dtype=torch.float64).expand(3, 2)
    matrix = kornia.geometry.transform.get_affine_matrix2d(
        shift, center, scale[:, None].expand(3, 2), angle.rad2deg()
    )
    expected = kornia.geometry.transform.warp_affine(
        images, matrix[:, :2].to(dtype), size, padding_mode="border", align_corners=False
    )
    found = warp(images, rotation(angle, scale, shift))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [3, 5, 23])
@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_blur_is_kornias(size: int, seed: int) -> None:
    images = random_images(seed, 3, 2, 6, 9, dtype=torch.float32)
    padded = extend(images, size // 2, size // 2)
    for count in (3, 1):
        sigma = numbers(seed, count, 0.001, 2)
        expected = kornia.filters.gaussian_blur2d(
            images, size, sigma[:, None].expand(count, 2).float(), border_type="replicate"
        )
        torch.testing.assert_close(blur(padded, sigma, size), expected, atol=1e-5, rtol=0)


def test_blur_weighs_neighbors_like_loops() -> None:
    images, sigma = random_images(0, 2, 2, 7, 6), torch.tensor([0.4, 1.3], dtype=torch.float64)
    found = blur(images, sigma, 5)
    assert found.shape == (2, 2, 3, 2)
    for index in range(2):
        bell = [math.exp(-(i**2) / (2 * sigma[index].item() ** 2)) for i in range(-2, 3)]
        for row in range(3):
            for column in range(2):
                total = torch.zeros(2, dtype=torch.float64)
                for i in range(5):
                    for j in range(5):
                        total += bell[i] * bell[j] * images[index, :, row + i, column + j]
                torch.testing.assert_close(found[index, :, row, column], total / sum(bell) ** 2)


# The views as their papers put them


def uniform(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)


def published_augment(
    images: Tensor, generator: torch.Generator, padding: str = "replicate", soft: bool = True
) -> Tensor:
    """CoTTA's chain word for word, with kornia: pad, warp over black, blur, crop back, add noise.

    ROID's pads by reflection, and is not `soft`: it has no blur and no noise.
    """
    height, width = images.shape[2:]

    def one(low: float, high: float) -> Tensor:
        return uniform(low, high, 1, generator)

    changes: list[Callable[[Tensor], Tensor]] = [
        lambda x: kornia.enhance.adjust_contrast(x, one(0.6, 1.4)),
        lambda x: kornia.enhance.adjust_contrast_with_mean_subtraction(x, one(0.7, 1.3)),
        lambda x: kornia.enhance.adjust_saturation_with_gray_subtraction(x, one(0.5, 1.5)),
        lambda x: kornia.enhance.adjust_hue(x, 2 * math.pi * one(-0.06, 0.06)),
        lambda x: kornia.enhance.adjust_gamma(x, one(0.7, 1.3)),
    ]
    view = images.clamp(0, 1)
    for index in torch.randperm(5, generator=generator).tolist():
        view = changes[index](view)
    top, left = height // 2, width // 2
    view = F.pad(view, (left, left, top, top), mode=padding)
    rows, columns = view.shape[2:]
    assert (rows, columns) == (2 * height, 2 * width)
    shift = torch.stack([one(-columns / 16, columns / 16), one(-rows / 16, rows / 16)], dim=1)
    angle, scale = one(-15, 15), one(0.9, 1.1)
    center = torch.tensor([[(columns - 1) / 2, (rows - 1) / 2]], dtype=torch.float64)
    matrix = kornia.geometry.transform.get_affine_matrix2d(
        shift, center, scale[:, None].expand(1, 2), angle
    )
    view = kornia.geometry.transform.warp_affine(
        view, matrix[:, :2], (rows, columns), padding_mode="zeros", align_corners=False
    )
    if soft:
        view = kornia.filters.gaussian_blur2d(view, 5, one(0.001, 0.5)[:, None].expand(1, 2))
    view = view[:, :, top : top + height, left : left + width]
    if one(0, 1) < 0.5:
        view = kornia.geometry.transform.hflip(view)
    if not soft:
        return view.clamp(0, 1)
    noise_seed = int(torch.randint(2**63 - 1, (), generator=generator))
    noise = torch.randn(view.shape, generator=seeded(noise_seed), dtype=view.dtype)
    return (view + 0.005 * noise).clamp(0, 1)


@pytest.mark.parametrize("size", [(20, 20), (32, 32), (32, 40)])
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_augment_is_the_published_chain(size: tuple[int, int], seed: int) -> None:
    images = 1.2 * random_images(seed, 2, 3, *size) - 0.1  # some values to clip
    found = augment(images, seeded(seed))
    torch.testing.assert_close(found, published_augment(images, seeded(seed)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(4, 4), (20, 20), (32, 40)])
@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_mild_is_the_published_chain(size: tuple[int, int], seed: int) -> None:
    images = 1.2 * random_images(seed, 2, 3, *size) - 0.1
    expected = published_augment(images, seeded(seed), padding="reflect", soft=False)
    torch.testing.assert_close(mild(images, seeded(seed)), expected, atol=1e-5, rtol=0)


def test_weak_only_flips_unless_it_crops() -> None:
    images = torch.rand(200, 3, 9, 11, generator=seeded(0))
    views = weak(images, seeded(1))
    flipped = (views == images.flip(-1)).flatten(1).all(dim=1)
    kept = (views == images).flatten(1).all(dim=1)
    assert (flipped ^ kept).all()
    assert 70 < flipped.sum() < 130


@pytest.mark.parametrize("size", [(8, 8), (17, 26), (5, 16)])
def test_weak_shifts_and_flips_whole_pixels(size: tuple[int, int]) -> None:
    height, width = size
    images = torch.rand(200, 3, height, width, generator=seeded(0))
    possible = {
        (dy, dx, flip)
        for dy in range(-(height // 8), height // 8 + 1)
        for dx in range(-(width // 8), width // 8 + 1)
        for flip in (False, True)
    }
    seen: list[tuple[int, int, bool]] = []
    for image, view in zip(images, weak(images, seeded(1), crop=True), strict=True):
        for dy, dx, flip in possible:
            rows = [min(max(row + dy, 0), height - 1) for row in range(height)]
            columns = [min(max(column + dx, 0), width - 1) for column in range(width)]
            if torch.equal(view, image[:, rows][:, :, columns[::-1] if flip else columns]):
                seen.append((dy, dx, flip))
                break
    assert len(seen) == 200
    assert {dy for dy, _, _ in seen} == {dy for dy, _, _ in possible}
    assert {dx for _, dx, _ in seen} == {dx for _, dx, _ in possible}
    assert 70 < sum(flip for _, _, flip in seen) < 130


def slow_strong(images: Tensor, generator: torch.Generator, crop: bool) -> Tensor:
    """AdaContrast's strong view, image by image, with the draws made as `strong` makes them."""
    count, _, height, width = images.shape
    views = [image.clamp(0, 1) for image in images]
    if crop:
        boxes = _crop_boxes(count, height, width, generator).tolist()
        views = [slow_warp(view, box) for view, box in zip(views, boxes, strict=True)]
    jittered = uniform(0, 1, count, generator) < 0.8
    orders = torch.rand(count, 4, generator=generator, dtype=torch.float64).argsort(dim=1)
    bounds = [(0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1 * 2 * math.pi, 0.1 * 2 * math.pi)]
    changes = [
        kornia.enhance.adjust_contrast,
        kornia.enhance.adjust_contrast_with_mean_subtraction,
        kornia.enhance.adjust_saturation_with_gray_subtraction,
        kornia.enhance.adjust_hue,
    ]
    factors = [uniform(low, high, count, generator) for low, high in bounds]
    grayed = uniform(0, 1, count, generator) < 0.2
    sigma = uniform(0.1, 2, count, generator)
    blurred = uniform(0, 1, count, generator) < 0.5
    flipped = uniform(0, 1, count, generator) < 0.5
    for index in range(count):
        view = views[index][None]
        if jittered[index]:
            for change in orders[index].tolist():
                view = changes[change](view, factors[change][index : index + 1])
        if grayed[index]:
            view = kornia.color.rgb_to_grayscale(view).expand(-1, 3, -1, -1)
        if blurred[index]:
            spread = sigma[index].expand(1, 2)
            view = kornia.filters.gaussian_blur2d(view, 13, spread, border_type="replicate")
        if flipped[index]:
            view = view.flip(-1)
        views[index] = view[0]
    return torch.stack(views)


@pytest.mark.parametrize("crop", [True, False])
@given(seed=seeds)
@settings(max_examples=8, deadline=None)
def test_strong_is_its_slow_twin(crop: bool, seed: int) -> None:
    images = random_images(seed, 10, 3, 6, 9)
    found = strong(images, seeded(seed), crop)
    expected = slow_strong(images, seeded(seed), crop)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (33, 47), (10, 80), (80, 10)])
def test_crops_have_their_area_and_lie_inside(height: int, width: int) -> None:
    boxes = _crop_boxes(4000, height, width, seeded(0))
    across, down = boxes[:, 0, 0], boxes[:, 1, 1]
    assert (boxes[:, [0, 1], [1, 0]] == 0).all()
    area, ratio = across * down, across * width / (down * height)
    for side, size, center in ((across, width, boxes[:, 0, 2]), (down, height, boxes[:, 1, 2])):
        assert (center.abs() + side * size / 2 <= size / 2 + 1e-9).all()
    assert (area >= 0.2).all()
    assert (area <= 1 + 1e-9).all()
    parts = torch.histc(area, bins=8, min=0.2, max=1) / 4000
    assert (parts - 1 / 8).abs().max() < 0.03  # every area is as likely as any other
    bounded = (ratio >= 3 / 4 - 1e-9) & (ratio <= 4 / 3 + 1e-9)
    filling = (across > 1 - 1e-9) | (down > 1 - 1e-9)
    assert (bounded | filling).all()
    if height == width:
        assert bounded.all()
        assert (ratio.log() > 0).double().mean().item() == pytest.approx(0.5, abs=0.05)


def as_picture(image: Tensor) -> Image.Image:
    return Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())


def as_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).double() / 255


@pytest.mark.parametrize("size", [(3, 4), (16, 16), (40, 23)])
@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_colors_of_augmix_are_pillows(size: tuple[int, int], seed: int) -> None:
    images = (random_images(seed, 4, 3, *size) * 255).round() / 255
    images[0, 1] = 0.2  # a flat channel
    thresholds = torch.randint(0, 257, (4,), generator=seeded(seed))
    found = {
        "autocontrast": autocontrast(images),
        "equalize": equalize(images),
        "posterize": posterize(images, 4),
        "solarize": solarize(images, thresholds),
    }
    for index, image in enumerate(images):
        picture = as_picture(image)
        expected = {
            "autocontrast": ImageOps.autocontrast(picture),
            "equalize": ImageOps.equalize(picture),
            "posterize": ImageOps.posterize(picture, 4),
            "solarize": ImageOps.solarize(picture, int(thresholds[index])),
        }
        for name, theirs in expected.items():
            # Pillow rounds the stretched values down to levels.
            atol = 1 / 255 + 1e-9 if name == "autocontrast" else 1e-9
            torch.testing.assert_close(
                found[name][index], as_tensor(theirs), rtol=0, atol=atol, msg=name
            )


def test_motions_of_augmix_are_pillows() -> None:
    rows, columns = torch.meshgrid(torch.arange(60.0), torch.arange(60.0), indexing="ij")
    smooth = torch.stack([rows, columns, (rows + columns) / 2])[None].double() / 60
    picture, bilinear = as_picture(smooth[0]), Image.Resampling.BILINEAR
    strength = torch.tensor([1.0], dtype=torch.float64)
    affine = {  # in the order of the list
        5: (1, 0.03, 0, 0, 1, 0),
        6: (1, 0, 0, 0.03, 1, 0),
        7: (1, 0, -2, 0, 1, 0),
        8: (1, 0, 0, 0, 1, -2),
    }
    expected = {
        4: picture.rotate(-3, bilinear),
        **{k: picture.transform((60, 60), Image.AFFINE, v, bilinear) for k, v in affine.items()},
    }
    for index, theirs in expected.items():
        found = _TRANSFORMS[index](smooth, strength)[0]
        inside = (slice(None), slice(5, -5), slice(5, -5))
        torch.testing.assert_close(
            found[inside], as_tensor(theirs)[inside], rtol=0, atol=1.6 / 255, msg=str(index)
        )


@given(seed=seeds)
@settings(max_examples=10, deadline=None)
def test_augmix_is_its_slow_twin(seed: int) -> None:
    images = random_images(seed, 5, 3, 12, 9)
    generator = seeded(seed)
    boxes = _crop_boxes(5, 12, 9, generator, smallest=0.08)
    flips = uniform(0, 1, 5, generator) < 0.5
    weights = -torch.log(1 - uniform(0, 1, 15, generator)).view(3, 5)
    lengths = torch.randint(1, 4, (15,), generator=generator).view(3, 5)
    draws = []
    for _ in range(3):
        kinds = torch.randint(9, (15,), generator=generator).view(3, 5)
        strength = uniform(0.1, 1, 15, generator).view(3, 5)
        positive = (uniform(0, 1, 15, generator) < 0.5).view(3, 5)
        draws.append((kinds, strength, positive))
    shares = uniform(0, 1, 5, generator)
    for index, found in enumerate(augmix(images, seeded(seed))):
        base = warp(images[index : index + 1], boxes[index : index + 1])
        base = base.flip(-1) if flips[index] else base
        mixed = torch.zeros_like(base)
        for chain in range(3):
            view = base
            for kinds, strength, positive in draws[: int(lengths[chain, index])]:
                sign = 1 if positive[chain, index] else -1
                amount = sign * strength[chain, index][None]
                view = _TRANSFORMS[int(kinds[chain, index])](view, amount)
            mixed = mixed + weights[chain, index] / weights[:, index].sum() * view
        expected = shares[index] * base + (1 - shares[index]) * mixed
        torch.testing.assert_close(found, expected[0], rtol=0, atol=1e-9)


# What all views promise


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_views_keep_shape_and_dtype_and_range(
    view: View, size: tuple[int, int], channels: int, dtype: torch.dtype
) -> None:
    images = random_images(0, 6, channels, *size, dtype=dtype).requires_grad_()
    before = images.detach().clone()
    found = view(images, seeded(1))
    assert (found.shape, found.dtype) == (images.shape, dtype)
    assert found.min() >= 0
    assert found.max() <= 1
    assert found.is_contiguous()
    assert not found.requires_grad
    assert torch.equal(images.detach(), before)
    assert found.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(view: View, dtype: torch.dtype) -> None:
    images = random_images(0, 6, 3, 12, 12, dtype=dtype)
    assert torch.equal(view(images, seeded(1)), view(images.float(), seeded(1)).to(dtype))


@pytest.mark.parametrize("view", VIEWS)
def test_memory_format_does_not_matter(view: View) -> None:
    images = random_images(0, 4, 3, 12, 10, dtype=torch.float32)
    channels_last = images.to(memory_format=torch.channels_last)
    found = view(channels_last, seeded(1))
    assert found.is_contiguous()
    assert torch.equal(found, view(images, seeded(1)))


@pytest.mark.parametrize("view", VIEWS)
def test_only_the_generator_draws(view: View) -> None:
    images = random_images(0, 8, 3, 16, 16)
    generator = seeded(5)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, second = view(images, generator), view(images, generator)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(view(images, generator.manual_seed(5)), first)
    assert torch.equal(view(images, generator), second)


@pytest.mark.parametrize("view", [augment, augmix, strong])
@given(seed=seeds, value=st.sampled_from([-1e30, -0.5, 0.0, 1e-40, 1e-8, 0.5, 1.0, 1e30]))
@settings(max_examples=40, deadline=None)
def test_nothing_finite_becomes_infinite(view: View, seed: int, value: float) -> None:
    images = random_images(seed, 4, 3, 5, 5, dtype=torch.float32)
    images[:2] = value  # flat images: no hue, no contrast
    images[2, 1] = value
    found = view(images, seeded(seed))
    assert found.min() >= 0  # false for NaN
    assert found.max() <= 1


def test_rounding_makes_nothing_whiter_than_white() -> None:
    # The taps of a blur add up to 1 but for the last digit.
    assert strong(torch.ones(200, 1, 50, 50), seeded(0)).max() <= 1


def test_augment_draws_once_for_the_batch() -> None:
    images = torch.full((2, 3, 64, 64), 0.5)
    images[:, 0] = 0.4
    for seed in range(5):
        # Halfway between black and white nothing is clipped: the images differ by two noises.
        one, other = augment(images, seeded(seed))
        assert (one - other).std().item() == pytest.approx(0.005 * math.sqrt(2), rel=0.03)
    picture = random_images(0, 1, 3, 32, 32).expand(4, -1, -1, -1)
    views = augment(picture, seeded(0))
    assert (views - views[:1]).abs().max() < 12 * 0.005
    assert (views - augment(picture, seeded(1))).abs().max() > 0.2


@pytest.mark.parametrize(
    ("view", "fewest"),
    [
        (partial(weak, crop=True), 60),
        (strong, 80),  # a tenth has neither another color nor a blur
        (partial(strong, crop=True), 100),
        (augmix, 100),
    ],
)
def test_views_of_single_images_draw_for_every_image(view: View, fewest: int) -> None:
    picture = random_images(0, 1, 3, 32, 32).expand(100, -1, -1, -1)
    assert len(view(picture, seeded(0)).unique(dim=0)) >= fewest


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_no_image_is_refused(view: View) -> None:
    with pytest.raises(ValueError, match=r"images must be floats .*, got torch\.uint8"):
        view(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), seeded(0))
    with pytest.raises(ValueError, match=r"\(n, channels, height, width\), got \(3, 8, 8\)"):
        view(torch.zeros(3, 8, 8), seeded(0))
    with pytest.raises(ValueError, match=r"samples \[1\] of the batch have NaN"):
        view(torch.tensor([0.0, math.nan]).view(2, 1, 1, 1), seeded(0))
