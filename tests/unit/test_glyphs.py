from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from dab.data.datasets import glyphs
from dab.data.datasets.glyphs import CHARACTERS, Glyphs, fonts_with

CLASSES = len(CHARACTERS)


def digest(images):
    return hashlib.sha256(images.tobytes()).hexdigest()


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    indices=st.lists(st.integers(0, 499), min_size=1, max_size=8),
    larger=st.integers(500, 900),
)
def test_an_image_follows_from_seed_and_index_alone(seed, indices, larger):
    data, again = Glyphs(seed, 500), Glyphs(seed, larger)
    images = data.batch(indices)
    assert images.shape == (len(indices), 32, 32, 3)
    assert images.dtype == np.uint8
    for position in reversed(range(len(indices))):  # another order, another size, one by one
        image, label = again[indices[position]]
        np.testing.assert_array_equal(image, images[position])
        assert label == data.labels[indices[position]]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**40), size=st.integers(1, 1000))
def test_labels_are_balanced_at_every_length(seed, size):
    data = Glyphs(seed, size)
    assert len(data) == len(data.labels) == size
    counts = np.bincount(data.labels, minlength=CLASSES)
    assert counts.max() - counts.min() <= 1
    for start in range(0, size - CLASSES + 1, CLASSES):
        assert sorted(data.labels[start : start + CLASSES]) == list(range(CLASSES))


def test_seeds_and_splits_have_no_image_in_common():
    seen = [
        {digest(image) for image in data.batch(range(200))}
        for data in (Glyphs.of_split("train", 200), Glyphs.of_split("test", 200), Glyphs(2, 200))
    ]
    assert len(seen[0] | seen[1] | seen[2]) == 600
    assert not np.array_equal(Glyphs(0, 200).labels, Glyphs(1, 200).labels)


def test_labels_do_not_repeat_from_round_to_round():
    labels = Glyphs(0, 2 * CLASSES).labels
    assert not np.array_equal(labels[:CLASSES], labels[CLASSES:])


def test_indices_are_those_of_a_sequence():
    data = Glyphs(0, 5)
    np.testing.assert_array_equal(data[-1][0], data[4][0])
    with pytest.raises(IndexError):
        data[5]
    with pytest.raises(IndexError):
        data.batch([0, -6])


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        Glyphs(0, 0)
    with pytest.raises(ValueError, match="split must be one of"):
        Glyphs.of_split("validation", 10)


def test_every_letter_stands_out_from_its_background():
    images = Glyphs(0, 10 * CLASSES).batch(range(10 * CLASSES))
    brightness = images @ np.array([0.299, 0.587, 0.114])
    # The border is background almost everywhere; the letter is what differs most from it.
    border = np.concatenate([brightness[:, 0], brightness[:, -1]], axis=1)
    difference = np.abs(brightness - np.median(border, axis=1)[:, None, None]).max(axis=(1, 2))
    assert difference.min() > 0.2 * 255


@cache
def upright(character, font):
    """The letter alone, stretched to a square of 24 pixels."""
    mask = glyphs._mask(character, font)
    return np.asarray(mask.resize((24, 24), Image.Resampling.BOX), float) / 255


def overlap(first, second, font):
    """Shared ink over all ink of two letters laid upon each other."""
    ink = [upright(character, font) for character in (first, second)]
    return np.minimum(*ink).sum() / np.maximum(*ink).sum()


@pytest.mark.parametrize("font", ["DejaVuSans", "DejaVuSerif", "DejaVuSansMono"])
def test_no_two_letters_look_alike(font):
    letters = [character for character in CHARACTERS if font in fonts_with(character)]
    for number, first in enumerate(letters):
        for second in letters[:number]:
            assert overlap(first, second, font) < 0.9, (first, second)
    for twin in "\u0391\u0410":  # Greek and Cyrillic A: the measure sees what it is there for
        assert overlap("A", twin, font) > 0.9


def test_every_letter_has_fonts_and_no_font_lacks_it():
    assert len(set(CHARACTERS)) == CLASSES == 100
    for character in CHARACTERS:
        fonts = fonts_with(character)
        assert len(fonts) >= 4
        for font in fonts:
            mask = glyphs._mask(character, font)
            missing = glyphs._mask("\uffff", font)  # what the font draws for what it lacks
            different = mask.size != missing.size or ImageChops.difference(mask, missing).getbbox()
            assert mask.getbbox() is not None
            assert different


def test_a_letter_that_no_font_has_is_named():
    with pytest.raises(ValueError, match=r"U\+4E00"):
        fonts_with("\u4e00")
