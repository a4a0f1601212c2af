"""The cache under reads in any order, damage, kills and company; corruptions kept in it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import resource
import shutil
import signal
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dab.data import corrupted_images, corruptions
from dab.data.cache import Cache, cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS, HELD_OUT, corrupt
from dab.data.datasets import cifar10, glyphs
from dab.data.datasets.cifar10 import CIFAR10
from dab.data.datasets.glyphs import Glyphs
from dab.data.images import Subset
from dab.utils.fingerprint import fingerprint
from tests.support.pictures import LABELS, Pictures

# The array that the caches of this file are filled with.

SHAPE = (12, 3, 4, 3)
PIXELS = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
BLACK = 5
PIXELS[BLACK] = 0  # no different from an image that has never been written
EVERY = np.arange(len(PIXELS))
HEADER = 128  # bytes in front of an array in a file


class Maker:
    """Makes the images, and counts."""

    def __init__(self):
        self.made: list[int] = []

    def __call__(self, indices):
        self.made += indices.tolist()
        return PIXELS[indices]


def read(folder, indices=EVERY):
    """The images as another run finds them, and which of them it had to make."""
    make = Maker()
    return Cache(folder, SHAPE).read(np.asarray(indices), make), make.made


@pytest.fixture
def full(tmp_path):
    read(tmp_path)
    return tmp_path


def restored(folder, expected=EVERY):
    """Whether a run finds the right images, making the expected ones, and the next only reads."""
    images, made = read(folder)
    again, nothing = read(folder)
    right = np.array_equal(images, PIXELS) and np.array_equal(again, PIXELS)
    return right and made == list(expected) and nothing == []


@settings(max_examples=60)
@given(reads=st.lists(st.lists(st.integers(0, 11), max_size=8), max_size=8))
def test_every_image_is_made_once_whatever_the_order(reads):
    with TemporaryDirectory() as folder:
        make, cache, seen = Maker(), Cache(Path(folder, "new", "cache"), SHAPE), set()
        for indices in reads:
            make.made.clear()
            images = cache.read(np.array(indices, np.int64), make)
            assert images.tolist() == [PIXELS[index].tolist() for index in indices]
            assert make.made == [index for index in indices if index not in seen]
            seen.update(indices)
            assert cache.complete() == (len(seen) == len(PIXELS))
        missing = [index for index in range(len(PIXELS)) if index not in seen]
        assert restored(cache.folder, missing)


def test_indices_are_those_of_a_sequence(tmp_path):
    images, made = read(tmp_path, [-1, 0, -12])
    assert np.array_equal(images, PIXELS[[-1, 0, 0]])
    assert made == [11, 0, 0]
    for index in (12, -13):
        with pytest.raises(IndexError):
            read(tmp_path, [3, index])
    assert restored(tmp_path, range(1, 11))


def test_what_is_read_may_be_changed(full):
    cache = Cache(full, SHAPE)
    images = cache.read(EVERY, Maker())
    assert type(images) is np.ndarray
    images[:] = 7
    assert np.array_equal(cache.read(EVERY, Maker()), PIXELS)


def test_asking_whether_a_cache_is_complete_makes_nothing(tmp_path):
    assert not Cache(tmp_path / "cache", SHAPE).complete()
    assert list(tmp_path.iterdir()) == []


def test_a_full_cache_is_only_read(full):
    def state():
        return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in full.iterdir()}

    before = state()
    assert len(before) == 2
    images, made = read(full)
    assert np.array_equal(images, PIXELS)
    assert made == []
    assert state() == before


def flip(file, position, bit):
    with file.open("rb+") as damaged:
        damaged.seek(position)
        (byte,) = damaged.read(1)
        damaged.seek(position)
        damaged.write(bytes([byte ^ 1 << bit]))


@settings(max_examples=60)
@given(position=st.integers(0, PIXELS.size - 1), bit=st.integers(0, 7))
@example(position=0, bit=0)
@example(position=PIXELS.size - 1, bit=7)
def test_a_flipped_bit_of_a_pixel_is_noticed(position, bit):
    with TemporaryDirectory() as name:
        read(Path(name))
        flip(Path(name, "images.npy"), HEADER + position, bit)
        assert restored(Path(name), [position // PIXELS[0].size])


@settings(max_examples=30)
@given(position=st.integers(0, 4 * len(PIXELS) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_of_a_checksum_is_noticed(position, bit):
    with TemporaryDirectory() as name:
        read(Path(name))
        flip(Path(name, "checksums.npy"), HEADER + position, bit)
        assert restored(Path(name), [position // 4])


FILES = ["images.npy", "checksums.npy"]
some_file = st.sampled_from(FILES)


@settings(max_examples=60)
@given(file=some_file, position=st.integers(0, HEADER - 1), bit=st.integers(0, 7))
def test_a_damaged_header_is_refused(file, position, bit):
    with TemporaryDirectory() as name:
        read(Path(name))
        flip(Path(name, file), position, bit)
        with pytest.raises(ValueError, match=r"is not an array of \(12,.*\) uint\d+: remove it"):
            read(Path(name))


@pytest.mark.parametrize(
    ("file", "array"),
    [
        ("images.npy", np.zeros((13, 3, 4, 3), np.uint8)),
        ("images.npy", PIXELS.reshape(12, 4, 3, 3)),
        ("images.npy", PIXELS.view(np.int8)),
        ("images.npy", np.asfortranarray(PIXELS)),
        ("checksums.npy", np.zeros(13, np.uint32)),
        ("checksums.npy", np.zeros(12, np.int64)),
    ],
)
def test_other_arrays_are_refused(full, file, array):
    np.save(full / file, array)
    with pytest.raises(ValueError, match=re.escape(f"{full / file} is not an array of (12,")):
        read(full)


@settings(max_examples=60)
@given(file=some_file, share=st.floats(0, 1))
@example(file="images.npy", share=0.0)
@example(file="checksums.npy", share=0.0)
def test_a_file_cut_short_is_completed(file, share):
    with TemporaryDirectory() as name:
        read(Path(name))
        content = Path(name, file).read_bytes()
        kept = content[: int(share * len(content))]
        Path(name, file).write_bytes(kept)
        # Zeros come where something was cut off, which need not be wrong.
        length = (len(content) - HEADER) // len(PIXELS)
        starts = range(HEADER, len(content), length)
        before, after = ([c[at : at + length] for at in starts] for c in (content, kept))
        assert restored(
            Path(name), [i for i in EVERY if after[i] + bytes(length - len(after[i])) != before[i]]
        )


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("size", [0, HEADER + 7, None])
def test_files_may_be_cut_or_removed_while_they_are_used(full, file, size):
    cache = Cache(full, SHAPE)
    assert np.array_equal(cache.read(EVERY, Maker()), PIXELS)
    if size is None:
        (full / file).unlink()
    else:
        os.truncate(full / file, size)
    make = Maker()
    assert np.array_equal(cache.read(EVERY, make), PIXELS)
    assert make.made
    assert cache.complete()
    assert restored(full, [])


def test_files_can_be_loaded_by_hand(full):
    assert np.array_equal(np.load(full / "images.npy"), PIXELS)
    assert np.load(full / "checksums.npy").tolist() == [zlib.crc32(image) for image in PIXELS]


@pytest.mark.parametrize("file", FILES)
def test_a_removed_file_is_made_again(full, file):
    (full / file).unlink()
    assert not Cache(full, SHAPE).complete()
    # A black image has a checksum that fits an empty file, and is right there.
    assert restored(full, EVERY if file == "checksums.npy" else np.delete(EVERY, BLACK))
    assert Cache(full, SHAPE).complete()


# The states that a process killed at any moment can leave behind.


def test_an_empty_file_is_a_beginning(tmp_path):
    for file in FILES:
        (tmp_path / file).touch()
    before = [(tmp_path / file).stat().st_ino for file in FILES]
    assert not Cache(tmp_path, SHAPE).complete()
    assert restored(tmp_path)
    # Another process may have begun it too: then a new file would take the old one away from it.
    assert [(tmp_path / file).stat().st_ino for file in FILES] == before


def test_pixels_without_their_checksum_are_not_believed(tmp_path):
    cache = Cache(tmp_path, SHAPE)
    cache.read(EVERY[:6], Maker())
    with (tmp_path / "images.npy").open("rb+") as file:
        file.seek(HEADER + PIXELS[:6].nbytes)
        file.write(PIXELS[6:].tobytes()[:100])  # two images and a piece, and no checksum
    assert restored(tmp_path, range(6, 12))


def test_a_full_disk_is_an_error_and_leaves_nothing_wrong(tmp_path):
    cache = Cache(tmp_path, SHAPE)
    cache.read(EVERY[:1], Maker())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER + 300, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path}/images.npy'"):
            cache.read(EVERY, Maker())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert restored(tmp_path, range(1, 12))


def directly(image, corruption, severity, index):
    rng = np.random.default_rng([zlib.crc32(corruption.encode()), severity, index])
    return corrupt(image, corruption, severity, rng)


NOISY = np.stack(
    [directly(image, "gaussian_noise", 5, i) for i, image in enumerate(Pictures(LABELS).images)]
)


def noisy(folder, clean):
    data = CorruptedImages(clean, "gaussian_noise", 5, folder)
    clean.read.clear()  # the first image is looked at for its size
    return data


FORK = multiprocessing.get_context("fork")


class Deadly(Pictures):
    """Kills the process that reads more than 24 images."""

    def batch(self, indices):
        if len(self.read) == 24:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(indices)


def fill_until_killed(folder):
    data = noisy(folder, Deadly(LABELS))
    for start in range(0, 60, 8):
        data.batch(range(start, start + 8))


def test_a_killed_process_leaves_a_cache_that_is_completed(tmp_path):
    process = FORK.Process(target=fill_until_killed, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    clean = Pictures(LABELS)
    data = noisy(tmp_path, clean)
    assert not data.ready()
    assert np.array_equal(data.batch(range(60)), NOISY)
    assert clean.read == list(range(24, 60))
    assert data.ready()


def fill(folders, me, barrier):
    for number, folder in enumerate(folders):
        data = noisy(folder, Pictures(LABELS))
        barrier.wait(timeout=60)  # for ever, if the other one has failed
        for index in np.random.default_rng([me, number]).permutation(60).tolist():
            assert np.array_equal(data.batch([index])[0], NOISY[index])


def test_processes_that_fill_a_cache_at_once_lose_nothing(tmp_path):
    folders = [tmp_path / str(number) for number in range(20)]
    barrier = FORK.Barrier(2)
    processes = [FORK.Process(target=fill, args=(folders, me, barrier)) for me in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    for folder in folders:
        clean = Pictures(LABELS)
        data = noisy(folder, clean)
        assert data.ready()
        assert np.array_equal(data.batch(range(60)), NOISY)
        assert clean.read == []


def test_a_pickle_carries_no_pixels(full):
    cache = Cache(full, SHAPE)
    size = len(pickle.dumps(cache))
    cache.read(EVERY, Maker())
    assert len(pickle.dumps(cache)) == size < 1000
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.complete()
    assert np.array_equal(copy.read(EVERY, Maker()), PIXELS)
    data = CorruptedImages(Glyphs(0, 40), "contrast", 3, full)
    size = len(pickle.dumps(data))
    images = data.batch(range(40))
    assert len(pickle.dumps(data)) == size < images.nbytes / 10
    copy = pickle.loads(pickle.dumps(data))
    assert copy.ready()
    assert np.array_equal(copy.batch(range(40)), images)


@settings(max_examples=60)
@given(
    corruption=st.sampled_from(CORRUPTIONS + HELD_OUT),
    severity=st.integers(1, 5),
    reads=st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=3),
)
def test_an_image_is_corrupted_by_its_index_alone(corruption, severity, reads):
    clean = Pictures([0] * 5)
    expected = [directly(clean.images[i], corruption, severity, i).tolist() for i in range(5)]
    with TemporaryDirectory() as folder:
        data = CorruptedImages(clean, corruption, severity, Path(folder))
        assert len(data) == 5
        for indices in reads:
            assert data.batch(indices).tolist() == [expected[index] for index in indices]
        assert data.batch(np.arange(5)).tolist() == expected


def test_equal_images_are_corrupted_differently(tmp_path):
    clean = Pictures([0] * 8)
    clean.images[:] = 128
    images = [
        image.tobytes()
        for corruption in ("gaussian_noise", "shot_noise")
        for severity in (4, 5)
        for image in CorruptedImages(clean, corruption, severity, tmp_path).batch(range(8))
    ]
    assert len(set(images)) == len(images)


def test_the_second_run_only_reads(tmp_path):
    clean = Pictures(LABELS)
    data = noisy(tmp_path, clean)
    assert not data.ready()
    data.batch(range(0, 60, 2))
    assert not data.ready()
    data.batch(range(60))
    assert data.ready()
    assert clean.read == [*range(0, 60, 2), *range(1, 60, 2)]
    again = noisy(tmp_path, clean)
    assert again.ready()
    assert np.array_equal(again.batch(range(59, -1, -1)), NOISY[::-1])
    assert clean.read == []


def test_every_corruption_of_every_data_set_has_a_folder_of_its_own(tmp_path, monkeypatch):
    def folder(clean, corruption="fog", severity=5):
        data = CorruptedImages(clean, corruption, severity, tmp_path)
        assert data.cache.folder.is_relative_to(tmp_path)
        return data.cache.folder, data.fingerprint

    clean, other = Pictures([0, 1, 2]), Pictures([0, 1, 2], key=1)
    relabelled, fewer = Pictures([0, 1, 1]), Subset(clean, 2)
    found = [folder(data) for data in (clean, other, relabelled, fewer)]
    found += [folder(clean, "fog", 4), folder(clean, "snow")]
    assert folder(Pictures([0, 1, 2])) == found[0]
    # Another library, and a change in the code that leaves the first image as it was.
    corrupted_images._version.cache_clear()
    with monkeypatch.context() as changed:
        changed.setattr(cv2, "__version__", "99")
        found += [folder(clean)]
    shutil.copytree(Path(corruptions.__file__).parent, tmp_path / "code")
    with (tmp_path / "code" / "blur.py").open("a") as file:
        file.write("# another line\n")
    corrupted_images._version.cache_clear()
    with monkeypatch.context() as changed:
        changed.setattr(corruptions, "__file__", str(tmp_path / "code" / "__init__.py"))
        found += [folder(clean)]
    corrupted_images._version.cache_clear()
    for names in zip(*found, strict=True):
        assert len(set(names)) == len(found)


def test_the_users_cache_is_taken_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "dab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "dab"
    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    CorruptedImages(Pictures([0]), "fog", 1).batch([0])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(("corruption", "severity"), [("rain", 3), ("fog", 0), ("fog", 6)])
def test_unknown_corruptions_are_refused_at_once(tmp_path, corruption, severity):
    with pytest.raises(ValueError, match=r"unknown corruption|severity must be"):
        CorruptedImages(Pictures([0]), corruption, severity, tmp_path)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=30)
@given(position=st.integers(0, PIXELS.size - 1), bit=st.integers(0, 7))
def test_a_fingerprint_shows_any_bit(position, bit):
    other = PIXELS.copy()
    other.flat[position] ^= 1 << bit
    assert fingerprint("data", other) != fingerprint("data", PIXELS)
    assert fingerprint("data", PIXELS[::2]) == fingerprint("data", PIXELS[::2].copy())


def test_a_fingerprint_shows_text_shape_and_type():
    found = [
        fingerprint(*content)
        for content in (
            (PIXELS,),
            (PIXELS.reshape(12, 4, 3, 3),),
            (PIXELS.view(np.int8),),
            ("data", PIXELS),
            (PIXELS, "data"),
            ("Data", PIXELS),
            (PIXELS, PIXELS),
        )
    ]
    assert len(set(found)) == len(found)
    assert all(len(name) == 16 and name.isalnum() for name in found)


def test_the_fingerprint_of_glyphs_shows_labels_and_drawing(monkeypatch):
    first = Glyphs(0, 200).fingerprint
    assert Glyphs(0, 200).fingerprint == first
    assert len({first, Glyphs(1, 200).fingerprint, Glyphs(0, 201).fingerprint}) == 3
    one = Glyphs(0, 1).fingerprint
    assert one != Glyphs(1, 1).fingerprint
    with monkeypatch.context() as changed:
        changed.setattr(glyphs, "SUPERSAMPLING", 1)
        assert Glyphs(0, 200).fingerprint != first
    glyphs._version.cache_clear()
    with monkeypatch.context() as changed:  # a font that the first image does not use
        changed.setattr(glyphs, "ASCII_FONTS", glyphs.ASCII_FONTS[1:])
        assert Glyphs(0, 1).fingerprint != one
    glyphs._version.cache_clear()


def test_the_fingerprint_of_cifar10_shows_every_pixel_and_label(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10, "PER_CLASS", {"train": 1, "test": 1})

    def found(images, labels):
        arrays = {"test_images": images, "test_labels": labels}
        np.savez(tmp_path / "cifar10.npz", **arrays)
        return CIFAR10(tmp_path, "test").fingerprint

    images, labels = Pictures(range(10), size=(32, 32)).images, np.arange(10)
    first = found(images, labels)
    assert found(images, labels) == first
    changed = images.copy()
    changed[9, 31, 31, 2] ^= 1
    assert len({first, found(changed, labels), found(images, labels[::-1])}) == 3


def test_a_subset_is_the_beginning(tmp_path):
    clean = Pictures([3, 1, 2, 0])
    subset = Subset(clean, 3)
    assert subset.labels.tolist() == [3, 1, 2]
    assert len(subset) == 3
    assert np.array_equal(subset.batch([2, 0]), clean.images[[2, 0]])
    assert len({data.fingerprint for data in (clean, subset, Subset(clean, 2))}) == 3
    for size in (0, 5):
        with pytest.raises(ValueError, match=f"cannot take {size} of 4 images"):
            Subset(clean, size)
