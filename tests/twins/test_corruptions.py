"""The corruptions against slow twins and, where it is installed, against an older implementation.

imagecorruptions-imaug agrees with the scripts that made ImageNet-C except in frost and
elastic_transform, and up to roundings in some others.
"""

from __future__ import annotations

import colorsys
import importlib.util
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dab.data.corruptions import CORRUPTIONS, HELD_OUT, corrupt
from dab.data.corruptions.blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from dab.data.corruptions.digital import elastic_transform
from dab.data.corruptions.registry import _CORRUPTIONS
from dab.data.corruptions.textures import plasma
from tests.support.corruption_constants import LARGE, SMALL

EVERY = CORRUPTIONS + HELD_OUT
SEVERITIES = range(1, 6)
SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.tuples(st.integers(3, 14), st.integers(3, 14))


def scene(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Soft shades with hard edges, flat black, gray and white, and a patch of noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width] / max(height, width)
    waves = [
        np.sin(rng.uniform(2, 20) * rows + rng.uniform(2, 20) * columns + rng.uniform(0, 6))
        for _ in range(3)
    ]
    image = np.uint8(127.5 + 127.5 * np.stack(waves, axis=2))
    for part, level in enumerate((0, 128, 255)):
        top, left = height * part // 4, width * part // 4
        image[top : top + height // 5, left : left + width // 5] = level
    noisy = image[height * 3 // 4 :, width * 3 // 4 :]
    noisy[:] = rng.integers(0, 256, noisy.shape)
    return image


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def distance(a: np.ndarray, b: np.ndarray) -> int:
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("name", EVERY)
def test_constants_are_the_published_ones(name):
    assert _CORRUPTIONS.keys() == SMALL.keys() == LARGE.keys() == set(EVERY)
    _, small, large = _CORRUPTIONS[name]
    for found, published, unit in ((small, SMALL[name], 32), (large, LARGE[name], 244)):
        assert len(found) == len(published) == len(SEVERITIES)
        for ours, theirs in zip(found, published, strict=True):
            if name == "zoom_blur":
                assert np.array_equal(ours, np.arange(1, *theirs))
            elif name == "elastic_transform":
                assert ours == ({32: 32, 244: 224}[unit], *(unit * share for share in theirs))
            elif name == "frost":
                assert ours[:2] == theirs
            else:
                assert ours == theirs


# The older implementation, with its draws taken from a generator of ours.


@pytest.fixture
def oracle(monkeypatch):
    if importlib.util.find_spec("imagecorruptions") is None:
        pytest.skip("imagecorruptions-imaug is not installed; `make test` installs it")
    module = importlib.import_module("imagecorruptions.corruptions")

    # Compiled code would draw its own numbers.
    shuffle = "_shuffle_pixels_njit_glass_blur"
    monkeypatch.setattr(module, shuffle, getattr(module, shuffle).py_func)

    def run(image: np.ndarray, name: str, severity: int, rng: np.random.Generator) -> np.ndarray:
        options = {"impulse_noise": {"seed": rng}, "glass_blur": {"seed": 0}}.get(name, {})
        with monkeypatch.context() as drawn:
            drawn.setattr(np.random, "normal", rng.normal)
            drawn.setattr(np.random, "poisson", rng.poisson)
            drawn.setattr(np.random, "uniform", rng.uniform)
            drawn.setattr(np.random, "randint", rng.integers)
            drawn.setattr(np.random, "seed", lambda _: None)
            return np.uint8(getattr(module, name)(Image.fromarray(image), severity, **options))

    return run


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(
    "name",
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
        "defocus_blur",
        "zoom_blur",
        "gaussian_blur",
        "brightness",
        "saturate",
        "contrast",
        "pixelate",
        "jpeg_compression",
    ],
)
def test_pixels_equal_the_oracle(oracle, name, severity):
    image = scene(224, 224, severity)
    expected = oracle(image, name, severity, generator(severity))
    np.testing.assert_array_equal(corrupt(image, name, severity, generator(severity)), expected)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_glass_blur_equals_the_oracle(oracle, severity):
    image = scene(70, 80, severity)  # its loop is slow
    expected = oracle(image, "glass_blur", severity, generator(severity))
    np.testing.assert_array_equal(
        corrupt(image, "glass_blur", severity, generator(severity)), expected
    )


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ["motion_blur", "fog", "spatter"])
def test_levels_are_within_one_of_the_oracle(oracle, name, severity):
    """It cuts off a motion blur that ImageMagick rounds, and computes in single precision."""
    image = scene(224, 224, severity)
    expected = oracle(image, name, severity, generator(severity))
    assert distance(corrupt(image, name, severity, generator(severity)), expected) <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_snow_is_within_two_levels_of_the_oracle(oracle, severity):
    """It does not cut the flakes off to levels, twice, and its streaks start beyond the edge."""
    image = scene(224, 224, severity)
    expected = oracle(image, "snow", severity, generator(severity))
    snowy = corrupt(image, "snow", severity, generator(severity))
    assert distance(snowy[:, 25:-25], expected[:, 25:-25]) <= 2


# Twins, which loop over the pixels.


def mirrored(index: int, size: int) -> int:
    """The index that reflection about the outermost pixels leads to: c b a b c."""
    period = max(1, 2 * (size - 1))
    index = index % period
    return min(index, period - index)


def doubled(index: int, size: int) -> int:
    """The index that reflection about the edges leads to: b a a b c."""
    index = index % (2 * size)
    return min(index, 2 * size - 1 - index)


def bilinear(plane: np.ndarray, row: float, column: float, beyond) -> float:
    top, left = math.floor(row), math.floor(column)
    down, right = row - top, column - left
    height, width = plane.shape
    return sum(
        plane[beyond(top + y, height), beyond(left + x, width)]
        * (down if y else 1 - down)
        * (right if x else 1 - right)
        for y in (0, 1)
        for x in (0, 1)
    )


@settings(deadline=None, max_examples=40)
@given(SEEDS, SIZES, st.integers(1, 4), st.integers(1, 3))
def test_glass_blur_equals_the_loop(seed, size, reach, passes):
    height, width = size
    image = generator(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    rng, expected = generator(seed + 1), image.copy()
    for _ in range(passes):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                right, down = rng.integers(-reach, reach, size=2)
                expected[row, column] = expected[row + down, column + right]
    # A Gaussian this narrow has a single tap.
    shuffled = glass_blur(image, (0.05, reach, passes), generator(seed + 1))
    np.testing.assert_array_equal(shuffled, expected)


def slow_gaussian(plane: np.ndarray, sigma: float, truncate: float) -> np.ndarray:
    reach = int(truncate * sigma + 0.5)
    taps = [math.exp(-((i / sigma) ** 2) / 2) if sigma else 1.0 for i in range(-reach, reach + 1)]
    for _ in range(2):  # along the columns, then, transposed, along the rows
        blurred = np.zeros_like(plane)
        for row, column in np.ndindex(plane.shape):
            for offset, tap in zip(range(-reach, reach + 1), taps, strict=True):
                blurred[row, column] += tap * plane[doubled(row + offset, len(plane)), column]
        plane = (blurred / sum(taps)).T
    return plane


@settings(deadline=None, max_examples=10)
@given(
    SEEDS,
    SIZES,
    st.sampled_from([(0, 0, 0.08), (0.05, 0.2, 0.07), (2, 0.08, 0.2), (0.12, 0.01, 0.02)]),
)
def test_elastic_transform_equals_the_loops(seed, size, fractions):
    height, width = size
    image = generator(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    strength, sigma, jitter = (fraction * min(size) for fraction in fractions)

    rng = generator(seed + 1)
    arm = min(size) // 3
    x, y = width // 2, height // 2
    corners = np.array([[x + arm, y + arm], [x + arm, y - arm], [x - arm, y - arm]])
    moved = corners + rng.uniform(-jitter, jitter, (3, 2))
    back = np.linalg.solve(np.c_[moved, np.ones(3)], corners)  # where each pixel comes from
    fields = [slow_gaussian(rng.uniform(-1, 1, size), sigma, 3) * strength for _ in range(2)]

    expected = np.zeros(image.shape)
    for channel in range(3):
        warped = np.zeros(size)
        for row, column in np.ndindex(size):
            from_x, from_y = np.array([column, row, 1]) @ back
            warped[row, column] = bilinear(image[..., channel], from_y, from_x, mirrored)
        for row, column in np.ndindex(size):
            from_y, from_x = row + fields[1][row, column], column + fields[0][row, column]
            expected[row, column, channel] = bilinear(warped, from_y, from_x, doubled)

    constants = (100, *(100 * fraction for fraction in fractions))
    elastic = elastic_transform(image, constants, generator(seed + 1))
    # Levels are cut off: single precision may fall to either side of a whole number.
    assert np.all((elastic <= expected + 0.01) & (elastic >= expected - 1.01))


@settings(deadline=None, max_examples=20)
@given(SEEDS, SIZES, st.integers(1, 20), st.floats(0.5, 15))
def test_motion_blur_equals_the_loop(seed, size, radius, sigma):
    image = generator(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    angle = math.radians(generator(seed + 1).uniform(-45, 45))
    expected, total = np.zeros(image.shape), 0.0
    for step in range(2 * radius + 1):
        weight = math.exp(-(step**2) / (2 * sigma**2))
        total += weight
        for row, column in np.ndindex(size):
            from_row = row + math.ceil(step * math.sin(angle) - 0.5)
            from_column = column + math.ceil(step * math.cos(angle) - 0.5)
            nearest = np.clip((from_row, from_column), 0, np.array(size) - 1)
            expected[row, column] += weight * image[tuple(nearest)]
    blurred = motion_blur(image, (radius, sigma), generator(seed + 1))
    assert np.abs(blurred - expected / total).max() <= 0.5 + 1e-9


@settings(deadline=None, max_examples=20)
@given(SEEDS, SIZES, st.lists(st.floats(1, 4.5), min_size=1, max_size=3))
def test_zoom_blur_equals_the_loop(seed, size, factors):
    image = generator(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    expected = image.astype(float)
    for factor in factors:
        kept = [math.ceil(side / factor) for side in size]
        start = [(side - keep) // 2 for side, keep in zip(size, kept, strict=True)]
        large = [round(keep * factor) for keep in kept]
        trim = [(big - side) // 2 for big, side in zip(large, size, strict=True)]
        for index in np.ndindex(image.shape):
            row, column = (
                # The outermost pixels stay the outermost ones.
                start[axis] + (index[axis] + trim[axis]) * (kept[axis] - 1) / (large[axis] - 1)
                for axis in (0, 1)
            )
            expected[index] += bilinear(image[..., index[2]], row, column, mirrored)
    expected /= len(factors) + 1
    blurred = zoom_blur(image, np.array(factors), generator())
    assert np.all((blurred <= expected + 0.01) & (blurred >= expected - 1.01))


@settings(deadline=None, max_examples=10)
@given(SEEDS, SIZES, st.sampled_from([(0.3, 0.4), (0.5, 0.6), (1, 0.2), (1.5, 0.1), (3, 0.1)]))
def test_defocus_blur_equals_the_loop(seed, size, constants):
    radius, softness = constants
    image = generator(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    near = range(-1, 2)
    soft = {i: math.exp(-((i / softness) ** 2) / 2) for i in near}
    disc: dict[tuple[int, int], float] = {}
    for down, right in np.ndindex(17, 17):
        for y in near:
            for x in near:
                if (down - 8 + y) ** 2 + (right - 8 + x) ** 2 <= radius**2:
                    disc[down - 8, right - 8] = (
                        disc.get((down - 8, right - 8), 0) + soft[y] * soft[x]
                    )
    expected = np.zeros(image.shape)
    for row, column in np.ndindex(size):
        for (down, right), weight in disc.items():
            source = mirrored(row + down, size[0]), mirrored(column + right, size[1])
            expected[row, column] += weight * image[source]
    expected /= sum(disc.values())
    blurred = defocus_blur(image, constants, generator())
    assert np.all((blurred <= expected + 0.01) & (blurred >= expected - 1.01))


@settings(deadline=None)
@given(SEEDS, st.integers(1, 40), st.floats(1, 4))
def test_plasma_equals_the_loop(seed, size, decay):
    side = 2
    while side < size:
        side *= 2
    rng, heights = generator(seed), np.zeros((side, side))

    def fill(first: tuple[int, int], neighbors: list[tuple[int, int]]) -> None:
        rows, columns = range(first[0], side, step), range(first[1], side, step)
        noise = wibble * rng.uniform(-wibble, wibble, (len(rows), len(columns)))
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                total = sum(heights[(row + y) % side, (column + x) % side] for y, x in neighbors)
                heights[row, column] = total / 4 + noise[i, j]

    step, wibble = side, 100.0
    while step > 1:
        half = step // 2
        cross = [(half, 0), (-half, 0), (0, half), (0, -half)]
        fill((half, half), [(y, x) for y in (-half, half) for x in (-half, half)])
        fill((0, half), cross)
        fill((half, 0), cross)
        step, wibble = half, wibble / decay
    expected = (heights - heights.min()) / (heights.max() - heights.min())
    np.testing.assert_allclose(plasma(size, decay, generator(seed)), expected, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.sampled_from(SEVERITIES))
def test_colors_equal_those_of_the_standard_library(seed, severity):
    image = generator(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    image[0] = image[0, :, :1]  # grays
    image[1, 0], image[1, 1] = 0, 255
    amount = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    gain, offset = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    brighter = corrupt(image, "brightness", severity, generator())
    stronger = corrupt(image, "saturate", severity, generator())
    for row, column in np.ndindex(4, 5):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[row, column] / 255))
        bright = colorsys.hsv_to_rgb(hue, saturation, min(value + amount, 1))
        strong = colorsys.hsv_to_rgb(hue, min(saturation * gain + offset, 1), value)
        for found, levels in ((brighter, bright), (stronger, strong)):
            below = 255 * np.array(levels) - found[row, column]
            assert np.all((below > -1e-9) & (below < 1 + 1e-9))


def test_pixelate_leaves_the_means_of_blocks():
    image = scene(96, 128)
    blocks = corrupt(image, "pixelate", 5, generator())
    for row, column in np.ndindex(24, 32):
        block = np.s_[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
        assert np.abs(blocks[block] - image[block].mean(axis=(0, 1))).max() <= 1


@given(SEEDS, st.sampled_from(SEVERITIES), st.sampled_from([(30, 40), (70, 66)]))
@settings(deadline=None, max_examples=10)
def test_frost_blends_the_same_ice_into_every_image(seed, severity, size):
    shares = {
        30: (1, 1, 0.9, 0.85, 0.75),
        70: (1, 0.8, 0.7, 0.65, 0.6),
    }[size[0]]
    image = generator(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    frosted = corrupt(image, "frost", severity, generator(seed))
    ice = corrupt(np.zeros_like(image), "frost", severity, generator(seed))
    expected = np.minimum(shares[severity - 1] * image.astype(float) + ice, 255)
    assert np.all((frosted >= expected - 1) & (frosted <= expected + 1))


# What holds for each of them.


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("size", [(32, 32), (40, 56), (64, 64), (96, 65), (224, 224), (150, 224)])
def test_every_severity_runs_at_every_size(name, size):
    image = scene(*size)
    for severity in SEVERITIES:
        corrupted = corrupt(image, name, severity, generator(severity))
        assert corrupted.shape == image.shape
        assert corrupted.dtype == np.uint8
        assert distance(corrupted, image) > 0
        assert corrupted.std() > 1


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=15)
@given(
    seed=SEEDS,
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    severity=st.sampled_from(SEVERITIES),
    flat=st.sampled_from([None, 0, 255]),
)
def test_tiny_and_flat_images_stay_images(name, seed, size, severity, flat):
    image = generator(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    if flat is not None:
        image[:] = flat
    corrupted = corrupt(image, name, severity, generator(seed))
    assert corrupted.shape == image.shape
    assert corrupted.dtype == np.uint8


def global_states() -> tuple[object, ...]:
    numpy_state = np.random.get_bit_generator().state["state"]
    return random.getstate(), numpy_state["pos"], numpy_state["key"].tobytes()


@pytest.mark.parametrize("size", [(32, 40), (96, 80)])
@pytest.mark.parametrize("name", EVERY)
def test_bytes_follow_from_the_generator_alone(name, size):
    image = scene(*size)
    # Read-only, and laid out as a tensor's channels-first memory would be.
    frozen = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
    frozen.setflags(write=False)
    before = global_states()
    first = corrupt(image, name, 4, generator(7))
    again = corrupt(frozen, name, 4, generator(7))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(image, scene(*size))
    assert not np.shares_memory(first, image)
    assert global_states() == before


def test_bytes_do_not_depend_on_the_layout_in_memory():
    """The mean of a channel does, in its last bit, if it is summed in another order."""
    for seed in range(300):
        height, width = generator(seed).integers(8, 60, 2)
        image = generator(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        planar = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
        for severity in SEVERITIES:
            expected = corrupt(image, "contrast", severity, generator())
            found = corrupt(planar, "contrast", severity, generator())
            np.testing.assert_array_equal(found, expected)


RANDOM = {
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "glass_blur",
    "motion_blur",
    "snow",
    "frost",
    "fog",
    "elastic_transform",
    "speckle_noise",
    "spatter",
}


@pytest.mark.parametrize("name", EVERY)
def test_another_seed_gives_other_bytes_where_chance_rules(name):
    image = scene(48, 48)
    one, other = (corrupt(image, name, 5, generator(seed)) for seed in (0, 1))
    assert np.array_equal(one, other) == (name not in RANDOM)


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize(
    "name",
    [
        # The published constants of most others do not grow in every respect; pixelate leaves
        # more of a pattern when the blocks happen to fit it.
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "zoom_blur",
        "snow",
        "fog",
        "brightness",
        "contrast",
        "jpeg_compression",
        "speckle_noise",
        "gaussian_blur",
    ],
)
def test_more_severe_is_further_from_the_image(name, size):
    def error(severity: int) -> float:
        images = [scene(size, size, seed) for seed in range(4)]
        return sum(
            np.square(corrupt(image, name, severity, generator(seed)) - image.astype(float)).mean()
            for seed, image in enumerate(images)
        )

    errors = [error(severity) for severity in SEVERITIES]
    assert errors == sorted(set(errors))


@pytest.mark.parametrize(
    ("size", "deviations", "shares"),
    [
        (64, (0.04, 0.06, 0.08, 0.09, 0.10), (0.01, 0.02, 0.03, 0.05, 0.07)),
        (65, (0.08, 0.12), (0.03, 0.06, 0.09, 0.17, 0.27)),  # beyond 0.12 values are clipped
    ],
)
def test_constants_change_above_64_pixels_on_the_shorter_side(size, deviations, shares):
    gray = np.full((size, 2000, 3), 128, np.uint8)
    for severity, deviation in enumerate(deviations, start=1):
        noisy = corrupt(gray, "gaussian_noise", severity, generator())
        assert noisy.std() / 255 == pytest.approx(deviation, rel=0.01)
    for severity, share in enumerate(shares, start=1):
        spotted = corrupt(gray, "impulse_noise", severity, generator())
        assert (spotted != 128).mean() == pytest.approx(share, rel=0.03)
        assert (spotted == 255).sum() == pytest.approx((spotted == 0).sum(), rel=0.06)


def test_lists_hold_what_is_registered():
    assert (len(set(CORRUPTIONS)), len(set(HELD_OUT)), len(set(EVERY))) == (15, 4, 19)
    with pytest.raises(ValueError, match="unknown corruption 'rain'") as error:
        corrupt(scene(32, 32), "rain", 1, generator())
    assert str(error.value).endswith("available: " + ", ".join(sorted(EVERY)))


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5])
def test_unknown_severity_is_refused(severity):
    with pytest.raises(ValueError, match="severity must be 1 to 5, got"):
        corrupt(scene(32, 32), "fog", severity, generator())


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((32, 32, 3)), "uint8 array, got float64"),
        ([[[0, 0, 0]]], "uint8 array, got list"),
        (np.zeros((32, 32), np.uint8), r"\(height, width, 3\), got \(32, 32\)"),
        (np.zeros((3, 32, 32), np.uint8), r"\(height, width, 3\), got \(3, 32, 32\)"),
        (np.zeros((0, 32, 3), np.uint8), r"\(height, width, 3\), got \(0, 32, 3\)"),
    ],
)
def test_what_is_no_image_is_refused(image, message):
    with pytest.raises(ValueError, match=message):
        corrupt(image, "fog", 1, generator())
