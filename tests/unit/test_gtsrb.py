"""GTSRB from small files of both layouts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dab.data.datasets.gtsrb import GTSRB
from dab.data.errors import DataError
from dab.data.transform import Transform

# Class, track, frame: tracks are numbered per class, and a frame may be missing.
NUMBERS = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (7, 0, 0), (7, 0, 2), (42, 3, 29)]
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
LABELS, TRACKS, FRAMES = np.array(NUMBERS).T
ARRAYS = {"images": PIXELS, "labels": LABELS, "tracks": TRACKS, "frames": FRAMES}


@pytest.fixture
def folder(tmp_path):
    for (label, track, frame), pixels in zip(NUMBERS, PIXELS, strict=True):
        (tmp_path / f"{label:05}").mkdir(exist_ok=True)
        file = tmp_path / f"{label:05}" / f"{track:05}_{frame:05}.ppm"
        Image.fromarray(pixels).save(file)
    (tmp_path / "00000" / "GT-00000.csv").write_text("Filename;Width;Height")
    return tmp_path


def saved(tmp_path, **changes):
    np.savez(tmp_path / "gtsrb.npz", **(ARRAYS | changes))
    return tmp_path / "gtsrb.npz"


def test_both_layouts_are_the_same_data(folder, tmp_path):
    for data in (GTSRB(folder), GTSRB(saved(tmp_path))):
        assert len(data) == 6
        assert [array.dtype for array in (data.labels, data.tracks, data.frames)] == [np.int64] * 3
        tracks = (data.tracks - 100_000 * data.labels).tolist()  # class and track, five digits each
        found = zip(data.labels.tolist(), tracks, data.frames.tolist(), strict=True)
        assert list(found) == NUMBERS
        np.testing.assert_array_equal(data.batch([5, 0, 5]), PIXELS[[5, 0, 5]])
        assert len(data.fingerprint) == 16


def test_no_track_is_in_both_halves(tmp_path):
    data = GTSRB(saved(tmp_path))
    train, test = data.half("train"), data.half("test")
    assert train.tracks.tolist() == [0, 0, 7 * 100_000, 7 * 100_000]
    assert test.tracks.tolist() == [1, 42 * 100_000 + 3]
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 7, 7], [0, 42])
    assert (train.frames.tolist(), test.frames.tolist()) == ([0, 1, 0, 2], [0, 29])
    np.testing.assert_array_equal(train.batch([3, 0]), PIXELS[[4, 0]])
    np.testing.assert_array_equal(test.batch([-1]), PIXELS[[5]])
    assert len({data.fingerprint, train.fingerprint, test.fingerprint}) == 3
    with pytest.raises(ValueError, match=r"half must be one of \('train', 'test'\), got 'val'"):
        data.half("val")


def test_a_single_track_has_no_other_half(tmp_path):
    data = GTSRB(saved(tmp_path, **{name: array[:2] for name, array in ARRAYS.items()}))
    assert len(data.half("train")) == 2
    with pytest.raises(DataError, match="too few tracks"):
        data.half("test")


@pytest.mark.parametrize(
    ("size", "kept"),
    [(6, [0, 1, 2, 3, 4, 5]), (5, [0, 1, 2, 3, 4]), (4, [0, 1, 3, 4]), (2, [0, 1])],
)
def test_a_part_has_whole_tracks(tmp_path, size, kept):
    part = GTSRB(saved(tmp_path)).spread(size)
    np.testing.assert_array_equal(part.batch(range(len(part))), PIXELS[kept])
    assert part.labels.tolist() == LABELS[kept].tolist()


def test_a_part_has_at_least_one_track_and_at_most_all(tmp_path):
    data = GTSRB(saved(tmp_path))
    with pytest.raises(ValueError, match="1 images are less than a track"):
        data.spread(1)
    with pytest.raises(ValueError, match="cannot take 7 of 6 images"):
        data.spread(7)


def test_files_are_resized(folder):
    Image.fromarray(PIXELS[0].repeat(2, axis=0)).save(folder / "00000" / "00000_00000.ppm")
    assert GTSRB(folder).batch([0, 1]).shape == (2, 32, 32, 3)
    assert GTSRB(folder, Transform(48, 40)).batch([0, 1]).shape == (2, 40, 40, 3)


def test_a_folder_says_all_that_is_wrong(folder):
    (folder / "00043").mkdir()
    (folder / "stop").mkdir()
    (folder / "00007" / "1_2.ppm").write_bytes(b"x")
    (folder / "00007" / "00001_00000.ppm").touch()
    with pytest.raises(DataError) as caught:
        GTSRB(folder)
    assert str(caught.value).splitlines() == [
        f"{folder} is not GTSRB:",
        "  1 empty files: 00007/00001_00000.ppm",
        "  1 files that are not TRACK_FRAME.ppm: 00007/1_2.ppm",
        "  2 folders that are not 00000 to 00042: 00043, stop",
    ]


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has no images CLASS/TRACK_FRAME\.ppm"):
        GTSRB(tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"images": PIXELS.astype(float)}, r"must be uint8 \(n, height, width, 3\), got float64"),
        ({"images": PIXELS[:, 0]}, r"must be uint8 .* got uint8 \(6, 32, 3\)"),
        ({"labels": LABELS[:-1]}, "one integer label, track and frame per image"),
        ({"tracks": TRACKS / 2}, "one integer label, track and frame per image"),
        ({"tracks": TRACKS + 99_997}, "must be numbered from 0, with five digits"),
        ({"tracks": TRACKS - 1}, "must be numbered from 0, with five digits"),
        ({"labels": LABELS + 1}, "labels in .* must be 0 to 42"),
        ({"labels": LABELS[::-1]}, "must be sorted by class, track and frame"),
        ({"frames": FRAMES * 0}, r"has 2 images of class, track and frame \(0, 0, 0\)"),
        (
            {"images": PIXELS[:0], **dict.fromkeys(("labels", "tracks", "frames"), LABELS[:0])},
            "0 to",
        ),
        ({"images": np.array([{}], object)}, "is not GTSRB, or damaged"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, changes, problem):
    with pytest.raises(DataError, match=problem):
        GTSRB(saved(tmp_path, **changes))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file or folder: "):
        GTSRB(tmp_path / "gone.npz")
    np.savez(tmp_path / "other.npz", images=PIXELS)
    with pytest.raises(DataError, match=r"other\.npz is not GTSRB, or damaged: .*labels"):
        GTSRB(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(DataError, match=r"text\.npz is not GTSRB, or damaged"):
        GTSRB(tmp_path / "text.npz")
