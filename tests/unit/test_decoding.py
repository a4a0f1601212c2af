"""Decoding, against Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from dab.data.decoding import decode, read
from dab.data.transform import Transform
from tests.support.pictures import jpeg, picture

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def by_pillow(content: bytes, transform: Transform) -> np.ndarray:
    """What torchvision's loader, Resize and CenterCrop do, in Pillow's own words."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    if transform.resize is not None:
        shorter = min(image.size)
        size = [int(transform.resize * side / shorter) for side in image.size]
        image = image.resize(size, RESAMPLING[transform.interpolation])
    left, top = (round((side - transform.crop) / 2) for side in image.size)
    return np.array(image.crop((left, top, left + transform.crop, top + transform.crop)))


def assert_close(found: np.ndarray, expected: np.ndarray, levels: int) -> None:
    assert found.dtype == np.uint8
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= levels


@settings(max_examples=60)
@example(84, 186, 28, "4:2:2", False, "RGB", Transform(80, 5, "bicubic"))
@given(
    width=st.integers(24, 300),
    height=st.integers(24, 300),
    quality=st.integers(20, 98),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    mode=st.sampled_from(["RGB", "L", "CMYK"]),
    transform=st.builds(
        Transform,
        resize=st.sampled_from([None, 24, 32, 80]),
        crop=st.integers(5, 24),
        interpolation=st.sampled_from(list(RESAMPLING)),
    ),
)
def test_pixels_are_those_of_pillow(
    tmp_path_factory, width, height, quality, subsampling, progressive, mode, transform
):
    options = {} if mode == "L" else {"subsampling": subsampling}
    content = jpeg(
        picture(width, height).convert(mode), quality, progressive=progressive, **options
    )
    assert_close(decode(content), np.array(Image.open(io.BytesIO(content)).convert("RGB")), 0)
    file = tmp_path_factory.getbasetemp() / "any.JPEG"
    file.write_bytes(content)
    assert_close(read(file, transform), by_pillow(content, transform), 2)


@pytest.mark.parametrize("interpolation", RESAMPLING)
def test_full_size_pictures_are_those_of_pillow(interpolation, tmp_path):
    transform = Transform(256, 224, interpolation)
    for seed, size in enumerate([(500, 375), (375, 500), (333, 500), (256, 256), (1500, 1001)]):
        content = jpeg(picture(*size, seed))
        (tmp_path / "any.JPEG").write_bytes(content)
        found = read(tmp_path / "any.JPEG", transform)
        assert_close(found, by_pillow(content, transform), 2)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        saved(picture(40, 30), "PNG"),
        saved(picture(40, 30).convert("P"), "PNG"),
        saved(picture(40, 30).convert("RGBA"), "PNG"),
        saved(picture(40, 30).convert("L"), "PNG"),
        saved(picture(40, 30), "WEBP", lossless=True),
        saved(picture(40, 30), "BMP"),
        saved(picture(40, 30).convert("CMYK"), "JPEG"),
        jpeg(picture(40, 30)) + b"what a camera has put behind the picture",
    ],
)
def test_what_is_no_plain_jpeg_is_read_whatever_its_name(content, tmp_path):
    file = tmp_path / "n01440764_1.JPEG"
    file.write_bytes(content)
    whole = read(file, Transform(None, 30))
    assert_close(whole, by_pillow(content, Transform(None, 30)), 0)


def test_the_orientation_of_a_camera_is_ignored():
    turned = Image.Exif()
    turned[0x0112] = 6
    plain = decode(jpeg(picture(40, 30)))
    assert np.array_equal(decode(jpeg(picture(40, 30), exif=turned)), plain)


WHOLE = jpeg(picture(60, 50))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"no picture", "not a readable image (cannot identify image file)"),
        (WHOLE[: len(WHOLE) // 2], "not a readable image (image file is truncated"),
        (WHOLE[:20], "not a readable image (cannot identify image file)"),
        (saved(picture(60, 50), "PNG")[:500], "not a readable image ("),
        (jpeg(picture(20, 50)), "an image of 50 x 20 pixels is smaller than the crop of 30"),
    ],
)
def test_an_unreadable_file_is_named(content, reason, tmp_path):
    file = tmp_path / "bad.JPEG"
    file.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is looked at
        read(file, Transform(None, 30))
    assert str(caught.value).startswith(f"{file}: {reason}")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.JPEG"):
        read(tmp_path / "gone.JPEG", Transform())
