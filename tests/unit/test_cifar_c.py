"""CIFAR-10-C and CIFAR-100-C from files of the published layout, with fewer images."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from dab.data.datasets import cifar_c
from dab.data.datasets.cifar_c import CIFARC
from dab.streams import Domain, Setting, Stream

IMAGES = 200
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (5 * IMAGES, 32, 32, 3), np.uint8)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cifar_c, "IMAGES", IMAGES)


@pytest.fixture(params=[("cifar10-c", "CIFAR-10-C", 10), ("cifar100-c", "CIFAR-100-C", 100)])
def data(request, tmp_path):
    """The name, the folder and the labels of a data set."""
    name, folder, classes = request.param
    (tmp_path / folder).mkdir()
    labels = RNG.permutation(np.arange(IMAGES) % classes).astype(np.uint8)
    np.save(tmp_path / folder / "labels.npy", np.tile(labels, 5))
    for corruption in ("fog", "snow"):
        np.save(tmp_path / folder / f"{corruption}.npy", PIXELS)
    return name, tmp_path / folder, labels


@pytest.mark.parametrize("severity", range(1, 6))
def test_severities_follow_each_other_in_a_file(data, severity):
    name, folder, labels = data
    expected = PIXELS[(severity - 1) * IMAGES : severity * IMAGES]
    for root in (folder, folder.parent):
        images = CIFARC(name, root, "fog", severity)
        assert len(images) == IMAGES
        assert type(images.labels) is np.ndarray  # not a mapped file
        assert images.labels.dtype == np.int64
        assert images.labels.tolist() == labels.tolist()
        np.testing.assert_array_equal(images.batch(range(IMAGES)), expected)
        found = images.batch([-1, 3, 3])
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected[[-1, 3, 3]])
    for index in (IMAGES, -IMAGES - 1):  # which other severities have
        with pytest.raises(IndexError):
            images.batch([index])


def test_a_stream_shows_them(data):
    name, folder, labels = data
    domains = [Domain(c, [CIFARC(name, folder, c, 5)]) for c in ("fog", "snow")]
    stream = Stream(domains, Setting.parse("correlated"))
    shown = np.concatenate([batch.labels.numpy() for batch in stream.batches(workers=1)])
    assert shown.tolist() == sorted(labels.tolist()) * 2


def test_a_pickle_carries_no_pixels(data):
    name, folder, _ = data
    images = CIFARC(name, folder, "fog", 2)
    assert len(pickle.dumps(images)) < 20_000 < images.batch(range(IMAGES)).nbytes


def test_fingerprints_show_pixels_and_labels(data):
    name, folder, labels = data
    found = {CIFARC(name, folder, "fog", severity).fingerprint for severity in (1, 2)}
    assert CIFARC(name, folder, "snow", 1).fingerprint in found  # the same images here
    changed = PIXELS.copy()
    changed[-1, -1, -1, -1] ^= 1
    np.save(folder / "fog.npy", changed)
    found |= {
        CIFARC(name, folder, "fog", 5).fingerprint,
        CIFARC(name, folder, "snow", 5).fingerprint,
    }
    np.save(folder / "labels.npy", np.tile(labels[::-1], 5))
    found.add(CIFARC(name, folder, "snow", 5).fingerprint)
    assert len(found) == 5


def test_what_is_missing_is_named(data):
    name, folder, _ = data
    with pytest.raises(ValueError, match=r"has no frost\.npy; available: fog, snow"):
        CIFARC(name, folder, "frost", 5)
    with pytest.raises(ValueError, match="available: none"):
        CIFARC(name, folder.parent.parent, "frost", 5)
    for severity in (0, 6):
        with pytest.raises(ValueError, match=f"severity must be 1 to 5, got {severity}"):
            CIFARC(name, folder, "fog", severity)
    (folder / "labels.npy").unlink()
    with pytest.raises(ValueError, match=r"labels\.npy is missing: unpack the archive again"):
        CIFARC(name, folder, "fog", 5)


@pytest.mark.parametrize(
    ("file", "array", "problem"),
    [
        ("fog", PIXELS[:-1], r"5 severities of 200 images; got uint8 \(999, 32, 32, 3\)"),
        ("fog", PIXELS.transpose(0, 3, 1, 2), r"got uint8 \(1000, 3, 32, 32\)"),
        ("fog", PIXELS.astype(np.float32), "got float32"),
        ("fog", np.asfortranarray(PIXELS), r"got uint8 \(1000, 32, 32, 3\)"),
        ("labels", np.zeros(IMAGES, np.uint8), r"got uint8 \(200,\)"),
        ("labels", np.zeros(5 * IMAGES), "got float64"),
        ("labels", np.zeros(5 * IMAGES, np.uint8), "200 of class 0, 0 of class 1"),
    ],
)
def test_wrong_files_are_refused(data, file, array, problem):
    name, folder, _ = data
    np.save(folder / f"{file}.npy", array)
    with pytest.raises(ValueError, match=rf"{file}\.npy must have .*{problem}"):
        CIFARC(name, folder, "fog", 5)


@pytest.mark.parametrize("keep", [0, 5, 100, 3000])
@pytest.mark.parametrize("file", ["fog", "labels"])
def test_truncated_files_are_refused(data, file, keep):
    name, folder, _ = data
    path = folder / f"{file}.npy"
    path.write_bytes(path.read_bytes()[: min(keep, path.stat().st_size - 1)])
    with pytest.raises(ValueError, match=rf"{file}\.npy is damaged or incomplete"):
        CIFARC(name, folder, "fog", 5)


@pytest.mark.parametrize("keep", [0, 5, 100, 3000])
def test_a_file_that_is_truncated_under_a_running_process_is_named(data, keep):
    name, folder, _ = data
    images = CIFARC(name, folder, "fog", 5)
    opened = cifar_c._mapped(folder / "fog.npy", np.uint8, (32, 32, 3))
    os.truncate(folder / "fog.npy", keep)
    with pytest.raises(ValueError, match=r"fog\.npy is damaged or incomplete"):
        images.batch([0])
    with pytest.raises(ValueError, match=r"fog\.npy was truncated: unpack the archive again"):
        cifar_c._rows(opened, [3, 4])  # as if between the two steps of a batch


def test_pickled_objects_are_refused(data):
    name, folder, _ = data
    np.save(folder / "fog.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"fog\.npy is damaged or incomplete"):
        CIFARC(name, folder, "fog", 5)


def test_the_other_data_set_is_refused(data):
    name, folder, _ = data
    other = {"cifar10-c": "cifar100-c", "cifar100-c": "cifar10-c"}[name]
    with pytest.raises(ValueError, match=r"labels\.npy must have"):
        CIFARC(other, folder, "fog", 5)
