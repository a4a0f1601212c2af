"""Preprocessing: the pictures that torchvision makes of Pillow's, and errors for what is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from dab.data.transform import Transform
from dab.models.libraries import library


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def oracle(picture: Image.Image, transform: Transform) -> np.ndarray:
    transforms = library("torchvision").transforms
    if transform.resize is not None:
        mode = transforms.InterpolationMode(transform.interpolation)
        picture = transforms.Resize(transform.resize, mode)(picture)
    return np.asarray(transforms.CenterCrop(transform.crop)(picture))


def distance(a: np.ndarray, b: np.ndarray) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b).max())


SIDES = st.integers(20, 330)


@settings(max_examples=60)
@example(333, 500, 256, 224, "bilinear")
@example(500, 375, 256, 224, "bicubic")
@example(97, 311, 73, 70, "bicubic")  # odd margins
@example(300, 300, 300, 224, "bilinear")  # nothing to resize
@example(40, 60, 256, 224, "bicubic")  # enlarged
# Where Pillow begins to resize columns before rows:
@example(200, 100, 70, 64, "bicubic")
@example(201, 100, 70, 64, "bicubic")
@example(301, 100, 99, 99, "bicubic")
@example(301, 100, 101, 99, "bicubic")
@given(
    SIDES,
    SIDES,
    st.integers(24, 260),
    st.integers(1, 260),
    st.sampled_from(["bilinear", "bicubic"]),
)
def test_pictures_are_those_of_torchvision_on_pillow(height, width, resize, crop, interpolation):
    transform = Transform(resize, min(crop, resize), interpolation)
    picture = Image.fromarray(noise(height, width))
    assert distance(transform(picture), oracle(picture, transform)) <= 2


@given(st.integers(24, 80), st.integers(24, 80), st.integers(1, 24))
def test_without_a_resize_the_center_is_cut_out_to_the_bit(height, width, crop):
    transform, picture = Transform(None, crop), Image.fromarray(noise(height, width))
    assert distance(transform(picture), oracle(picture, transform)) == 0


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_pictures_of_every_mode_have_three_colors(mode):
    picture = Image.fromarray(noise(50, 70)).convert(mode)
    transform = Transform(40, 32)
    assert distance(transform(picture), transform(picture.convert("RGB"))) == 0


def test_an_array_is_as_good_as_a_picture_and_stays_as_it_is():
    pixels = noise(50, 50)
    before = pixels.copy()
    for transform in (Transform(40, 32), Transform(None, 50)):
        cut = transform(pixels)
        assert distance(cut, transform(Image.fromarray(pixels))) == 0
        cut[:] = 0
        assert (pixels == before).all()


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"resize": 200}, "crop=224 exceeds resize=200"),
        ({"crop": 0}, "got 0"),
        ({"interpolation": "lanczos"}, "'lanczos'"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(arguments, culprit):
    with pytest.raises(ValueError, match=culprit):
        Transform(**arguments)


@pytest.mark.parametrize(
    ("pixels", "culprit"),
    [
        (np.zeros((3, 50, 50), np.uint8), r"uint8 \(3, 50, 50\)"),
        (np.zeros((50, 50, 3), np.float32), "float32"),
        (np.zeros((50, 30, 3), np.uint8), "50 x 30 pixels is smaller than the crop of 32"),
    ],
)
def test_what_is_no_picture_is_refused(pixels, culprit):
    with pytest.raises(ValueError, match=culprit):
        Transform(None, 32)(pixels)
