from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from dab.data.datasets import cifar100
from dab.data.datasets.cifar100 import CIFAR100

PER_CLASS = {"train": 3, "test": 2}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The real layout with fewer images."""
    monkeypatch.setattr(cifar100, "PER_CLASS", PER_CLASS)


def batch(images, labels):
    """A split as it is distributed."""
    rows = [image[:, :, channel].tobytes() for image in images for channel in range(3)]
    return {
        b"filenames": [b"a.png"] * len(images),
        b"batch_label": b"training batch 1 of 1",
        b"fine_labels": list(labels),
        b"coarse_labels": [0] * len(images),
        b"data": np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 3072),
    }


@pytest.fixture
def truth(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    splits = {}
    for split, per_class in PER_CLASS.items():
        labels = rng.permutation(np.repeat(np.arange(100), per_class)).tolist()
        images = rng.integers(0, 256, (len(labels), 32, 32, 3), np.uint8)
        (folder / split).write_bytes(pickle.dumps(batch(images, labels), protocol=3))
        splits[split] = images, labels
    return splits


@pytest.mark.parametrize("split", PER_CLASS)
@pytest.mark.parametrize("folder", ["", "cifar-100-python"])
def test_a_split_is_read_with_its_fine_labels(tmp_path, truth, split, folder):
    data = CIFAR100(tmp_path / folder, split)
    images, labels = truth[split]
    assert data.labels.tolist() == labels
    np.testing.assert_array_equal(data.batch(range(len(data))), images)
    assert len(data.fingerprint) == 16


def test_a_folder_without_it_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match=r"no CIFAR-100 in .*: unpack cifar-100-python there"):
        CIFAR100(tmp_path, "test")


def test_an_unknown_split_is_refused(tmp_path):
    with pytest.raises(ValueError, match="split must be one of"):
        CIFAR100(tmp_path, "meta")


def test_wrong_counts_and_labels_are_refused(tmp_path, truth):
    images, labels = truth["test"]
    file = tmp_path / "cifar-100-python" / "test"
    for wrong, problem in (
        ([7 if label == 8 else label for label in labels], "4 of class 7, 0 of class 8: "),
        ([label + 1 for label in labels], "0 of class 0, 2 of class 100: "),
        ([label - 1 for label in labels], "2 of class -1, 0 of class 99: "),
    ):
        file.write_bytes(pickle.dumps(batch(images, wrong)))
        with pytest.raises(ValueError, match=f"test must have 2 images of each of 100 .*{problem}"):
            CIFAR100(tmp_path, "test")
    file.write_bytes(pickle.dumps(batch(images, labels[:-1])))
    with pytest.raises(ValueError, match=r"\(200, 32, 32, 3\) uint8 with 199 labels"):
        CIFAR100(tmp_path, "test")


class Malice:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path, truth):
    file = tmp_path / "cifar-100-python" / "test"
    file.write_bytes(pickle.dumps({b"data": Malice(f"touch {tmp_path}/run"), b"fine_labels": []}))
    with pytest.raises(ValueError, match=r"test is not a batch of CIFAR: it refers to posix\.sys"):
        CIFAR100(tmp_path, "test")
    assert not (tmp_path / "run").exists()


def test_a_batch_of_cifar10_is_refused(tmp_path):
    images = np.zeros((20, 3072), np.uint8)
    (tmp_path / "test").write_bytes(pickle.dumps({b"data": images, b"labels": [0] * 20}))
    with pytest.raises(ValueError, match="test is not a batch of CIFAR: b'fine_labels'"):
        CIFAR100(tmp_path, "test")
