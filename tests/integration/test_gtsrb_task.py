"""GTSRB as a task of the benchmark, from a small file and a small folder."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from dab.benchmark import Result, TaskRecipe
from dab.cli import main
from dab.models import training
from dab.models.convnet import ConvNet
from dab.streams import Setting

FRAMES, TRACKS, CLASSES = 6, 4, 5
DRIVE = ["--setting", "drive+tracks", "--corruptions", "fog", "contrast", "--severity", "2"]


@pytest.fixture
def file(tmp_path):
    """Twenty tracks of six frames; the pixels tell the place of a frame."""
    numbers = np.indices((CLASSES, TRACKS, FRAMES)).reshape(3, -1)
    pixels = np.random.default_rng(0).integers(0, 256, (numbers.shape[1], 32, 32, 3), np.uint8)
    pixels[:, 0, 0, 0] = np.arange(numbers.shape[1])
    path = tmp_path / "gtsrb.npz"
    np.savez(path, images=pixels, **dict(zip(("labels", "tracks", "frames"), numbers, strict=True)))
    return path


@pytest.fixture
def model(tmp_path):
    """The name of an untrained net."""
    training.publish(ConvNet(43), tmp_path / "net.safetensors")
    return f"dab/gtsrb_convnet@{tmp_path / 'net.safetensors'}"


@pytest.fixture
def folder(file, tmp_path):
    """The same in the official layout."""
    arrays = np.load(file)
    rows = zip(*(arrays[name] for name in ("images", "labels", "tracks", "frames")), strict=True)
    for pixels, label, track, frame in rows:
        picture = tmp_path / "official" / f"{label:05}" / f"{track:05}_{frame:05}.ppm"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(picture)
    return tmp_path / "official"


def test_a_task_shows_every_other_track(file, folder, model, tmp_path):
    for root in (file, folder):
        task = TaskRecipe("gtsrb", root=root, model=model).create()
        fog, contrast = task.data.domains(("fog", "contrast"), 2, Setting("drive"), tmp_path)
        assert (fog.name, len(fog.parts), len(contrast.parts)) == ("fog", 4, 4)
        clean = fog.parts[0].batch(range(60))
        odd = np.arange(120).reshape(20, 6)[1::2].flatten()
        np.testing.assert_array_equal(clean[:, 0, 0, 0], odd)
        assert task.source_images().shape == (60, 3, 32, 32)
        assert task.model()(task.source_images()).shape == (60, 43)


def test_a_part_has_whole_tracks(file, model):
    part = TaskRecipe("gtsrb", root=file, samples=29, model=model).create().data.images
    assert np.unique(part.tracks, return_counts=True)[1].tolist() == [6] * 4


def test_a_run_reports_the_error_of_tracks(file, model, tmp_path, capsys):
    command = ["run", "tent", "--data", "gtsrb", "--root", str(file), "--model", model, *DRIVE]
    command += ["--batch-size", "5", "--cache", str(tmp_path), "--workers", "0"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert "tracks: tracks whose most frequent prediction is wrong" in capsys.readouterr().out
    for run in (tmp_path / "out").glob("*/"):
        result = Result.read(run)
        assert result is not None
        assert result.card.data.samples == 60
        assert result.card.setting == "drive+tracks"
        assert result.track_error is not None
        assert result.track_error % 10 == 0  # of ten tracks


def test_a_model_is_required(file):
    with pytest.raises(ValueError, match="gtsrb has no default model: name one with --model"):
        TaskRecipe("gtsrb", root=file).create()


def test_data_without_tracks_are_refused(tmp_path, capsys):
    assert main(["run", "source", "--setting", "drive+tracks", "--out", str(tmp_path)]) == 2
    assert "the setting drive+tracks is for videos" in capsys.readouterr().err


def test_a_folder_can_be_checked(file, folder, capsys):
    command = ["data", "check", "gtsrb", "--workers", "0", "--root"]
    assert main([*command, str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["domains"] == {"all tracks": {"images": 120, "classes": 5}}
    assert not found["complete"]
    picture = folder / "00001" / "00002_00003.ppm"
    picture.write_bytes(picture.read_bytes()[:100])
    assert main([*command, str(folder)]) == 1
    assert "00002_00003.ppm" in capsys.readouterr().err
    assert main([*command, str(file)]) == 2
    assert "gtsrb has no check: its files are verified whenever" in capsys.readouterr().err
