"""CIFAR-100 and the published files of CIFAR-10-C and CIFAR-100-C as tasks of the benchmark."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from torch import nn

from dab.benchmark import TaskRecipe
from dab.cli import main
from dab.data.datasets import cifar100, cifar_c
from dab.data.transform import Transform
from dab.models import zoo
from dab.streams import Setting

IMAGES = 200
PIXELS = np.random.default_rng(0).integers(0, 256, (5 * IMAGES, 32, 32, 3), np.uint8)


def hundred_classes() -> tuple[nn.Module, Transform]:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 100)), Transform(resize=None, crop=32)


HUNDRED = f"{__name__}:hundred_classes"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with small versions of the three data sets."""
    monkeypatch.setattr(cifar_c, "IMAGES", IMAGES)
    monkeypatch.setattr(cifar100, "PER_CLASS", {"train": 20, "test": 2})
    for folder, classes in (("CIFAR-10-C", 10), ("CIFAR-100-C", 100)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "labels.npy", np.arange(5 * IMAGES) % classes)
        for corruption in ("fog", "snow"):
            np.save(tmp_path / folder / f"{corruption}.npy", PIXELS)
    (tmp_path / "cifar-100-python").mkdir()
    for split, size in (("train", 2000), ("test", 200)):
        rows = np.resize(PIXELS, (size, 3072))
        batch = {b"data": rows, b"fine_labels": [index % 100 for index in range(size)]}
        (tmp_path / "cifar-100-python" / split).write_bytes(pickle.dumps(batch, protocol=3))
    return tmp_path


def test_published_files_are_the_domains(root):
    task = TaskRecipe("cifar10-c", root=root, samples=150).create()
    fog, snow = task.data.domains(("fog", "snow"), 2, Setting("gradual"), None)
    assert (fog.name, snow.name) == ("fog", "snow")
    assert [len(part) for part in fog.parts] == [150] * 3
    for part, severity in zip(fog.parts, (1, 2, 1), strict=True):
        expected = PIXELS[(severity - 1) * IMAGES :][:150]
        assert np.array_equal(part.batch(range(150)), expected)
    assert task.weights == TaskRecipe("cifar10-c", root=root).create().weights
    assert task.model().head.out_features == zoo.classes("cifar10")


def test_a_run_over_published_files(root, tmp_path, capsys):
    out = tmp_path / "out"
    command = f"run source --data cifar10-c --root {root} --corruptions fog snow --out {out}"
    assert main(command.split()) == 0
    assert len(list(out.glob("*/result.json"))) == 1
    assert main([*command.split()[:-3], "frost", "--out", str(out)]) == 2
    assert "has no frost.npy; available: fog, snow" in capsys.readouterr().err


def test_published_files_have_no_clean_images_for_a_drive(root):
    task = TaskRecipe("cifar10-c", root=root).create()
    with pytest.raises(ValueError, match="cifar10-c has no clean images, which the setting drive"):
        task.data.domains(("fog",), 5, Setting("drive"), None)


@pytest.mark.parametrize("name", ["cifar100", "cifar100-c"])
def test_data_without_a_shipped_model_require_one(root, name):
    with pytest.raises(ValueError, match=f"{name} has no default model: name one with --model"):
        TaskRecipe(name, root=root).create()
    task = TaskRecipe(name, root=root, model=HUNDRED).create()
    (fog,) = task.data.domains(("fog",), 5, Setting(), root / "cache")
    assert sorted(set(fog.parts[0].labels.tolist())) == list(range(100))
    with pytest.raises(ValueError, match="is read from disk: name its folder with --root"):
        TaskRecipe(name, model=HUNDRED).create()


def test_models_must_have_the_classes_of_the_data(root):
    with pytest.raises(ValueError, match=r"cifar10-c has 10 classes, but .* returns 100"):
        TaskRecipe("cifar10-c", root=root, model=HUNDRED).create()


def test_cifar100_has_training_images(root):
    task = TaskRecipe("cifar100", root=root, model=HUNDRED).create()
    assert task.source_images().shape == (2000, 3, 32, 32)
