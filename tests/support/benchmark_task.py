"""A task that takes seconds: a tiny net, and small images of which it knows most."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dab.benchmark import Cell, Clean, Result, Task, TaskFactory, TaskRecipe, register_task
from dab.benchmark.running import run as running
from dab.data.images import Indices, to_tensor
from dab.streams import Setting
from dab.utils.fingerprint import fingerprint
from tests.support.nets import CLASSES, net, stream

CORRUPTIONS = ("gaussian_noise", "contrast", "brightness")
SOURCE_ERROR = 50.0  # that `run` compares with

# Options with which the methods do on a short stream what they do on a long one.
OPTIONS = {
    "source": {},
    "tent": {"lr": 0.005},
    "dab": {"capacity": 16, "batch_size": 8, "lr": 0.01},
    "note": {"capacity": 16, "update_every": 16, "lr": 0.05},
    "rotta": {"capacity": 16, "update_every": 16, "lr": 0.05, "teacher": 0.8},
    "cotta": {"augmentations": 2, "gate": 1.0},
    "eata": {"lr": 0.01},
    "lame": {},
    "adacontrast": {"queue": 32, "refine_after": 16},
}


class Pictures:
    """Images in memory."""

    def __init__(self, pixels: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        return self.pixels[np.asarray(indices)]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.pixels, self.labels)


def pictures(size: int = 70, seed: int = 0) -> Pictures:
    """Images with the labels that the source model finds, one in five replaced by another."""
    (images,) = stream((size,), seed=seed)
    pixels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    with torch.no_grad():
        labels = net("layernorm").eval()(to_tensor(pixels)).argmax(dim=1).numpy()
    rng = np.random.default_rng(seed)
    other = rng.random(size) < 0.2
    labels[other] = rng.integers(CLASSES, size=other.sum())
    return Pictures(pixels, labels)


def source_images() -> Tensor:
    return to_tensor(pictures(24, seed=1).pixels)


def tiny_task(size: int = 70, seed: int = 0, samples: int | None = None) -> Task:
    card = {"name": "tests/tiny", "preprocessing": {"mean": [0.0]}}
    data = Clean(pictures(size, seed), samples)
    return Task("tiny", data, lambda: net("layernorm"), card, source_images)


@register_task("tiny")
class TinyTask(TaskFactory):
    """Small images for tests."""

    classes = CLASSES

    def create(self, recipe: TaskRecipe) -> Task:
        return tiny_task(samples=recipe.samples)


def tiny_cell(method: str, setting: str = "continual", *, seed: int = 0, severity: int = 5) -> Cell:
    """A cell whose domains are no multiple of its batches."""
    return Cell(
        method,
        OPTIONS[method],
        data="tiny",
        setting=Setting.parse(setting),
        seed=seed,
        batch_size=16,
        corruptions=CORRUPTIONS,
        severity=severity,
    )


def run(cell: Cell, task: Task, out: Path, **options: Any) -> Result:
    """One run by itself: what it is compared with was not measured."""
    source_error = None if cell.is_source else SOURCE_ERROR
    return running.run(cell, task, out, source_error=source_error, **options)


def by_method(out: Path) -> dict[str, dict[str, Any]]:
    """What stands in the results of a folder, by method, without what was measured."""
    return {result["card"]["method"]: result for result in _by_run(out).values()}


def _by_run(out: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for file in out.glob("*/result.json"):
        found[file.parent.name] = result = json.loads(file.read_text())
        del result["checksum"]  # also of what was measured
        for measured in ("seconds", "images_per_second", "peak_memory_mib"):
            assert result.pop(measured) > 0
    return found


def assert_same_runs(out: Path, other: Path) -> None:
    """Two folders hold the same finished runs, equal to the bit, and nothing else."""
    assert _by_run(out) == _by_run(other)
    runs = sorted(folder.name for folder in out.iterdir() if folder.is_dir())
    assert runs == sorted(folder.name for folder in other.iterdir() if folder.is_dir())
    for run in runs:
        assert {file.name for file in (out / run).iterdir()} == {"result.json", "trace.npz"}
        assert (out / run / "trace.npz").read_bytes() == (other / run / "trace.npz").read_bytes()
