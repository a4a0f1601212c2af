"""What other tools are told of a run, read back from their own files."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dab.benchmark import Result
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.loggers import LOGGERS, create_logger
from dab.benchmark.running.run import Interrupted
from dab.cli import main
from tests.support.benchmark_task import CORRUPTIONS, run, tiny_cell, tiny_task

CELL = tiny_cell("dab", "correlated")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def by_hand(result: Result, out: Path, cache: Path) -> dict[str, dict[int, float]]:
    """The metrics of a run by name and images seen, from its trace; a window is a batch here."""
    labels = stream_of(CELL, tiny_task(), cache).labels
    expected: dict[str, dict[int, float]] = {}
    with np.load(out / result.card.run_id / "trace.npz") as trace:
        at = 0
        for call, samples in enumerate(trace["samples"].astype(int).tolist()):
            window = slice(at, at + samples)
            at += samples
            metrics = {
                "error": 100 * np.mean(trace["predictions"][window] != labels[window]),
                "fill": trace["fill"][call],
                "admitted": trace["admitted"][call] / samples,
                "updated": trace["updated"][call],
                "loss": trace["loss"][call],
            }
            for name, value in metrics.items():
                if not math.isnan(value):
                    expected.setdefault(name, {})[at] = value
    return expected


class Diary:
    """A logger that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def start(self, card, seen):
        self.told.append(("start", card.method, seen))

    def log(self, seen, metrics):
        self.told.append(("log", seen, dict(metrics)))

    def finish(self, result):
        self.told.append(("finish", result and result.error))


def stop_after(batches: int):
    def watch(cell, seen, samples):
        nonlocal batches
        if cell.method == CELL.method:
            batches -= 1
            if not batches:
                signal.raise_signal(signal.SIGINT)

    return watch


def test_a_logger_is_told_of_every_window_of_a_run(tmp_path, cache):
    diary = Diary()
    result = run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[diary])
    start, *windows, finish = diary.told
    assert start == ("start", "dab", 0)
    assert finish == ("finish", result.error)
    assert [entry[0] for entry in windows] == ["log"] * 15
    expected = by_hand(result, tmp_path, cache)
    found: dict[str, dict[int, float]] = {}
    for _, seen, metrics in windows:
        for name, value in metrics.items():
            found.setdefault(name, {})[seen] = value
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name


def test_a_run_that_is_cut_short_and_goes_on_says_so(tmp_path, cache):
    diary = Diary()
    watch = stop_after(6)
    with pytest.raises(Interrupted):
        run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[diary], watch=watch)
    assert diary.told[-1] == ("finish", None)
    result = run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[diary])
    assert diary.told[8] == ("start", "dab", 86)
    assert diary.told[-1] == ("finish", result.error)
    seen = [entry[1] for entry in diary.told if entry[0] == "log"]
    assert seen == sorted(seen)
    assert len(seen) == 15
    run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[diary])  # is only read
    assert diary.told[-1] == ("finish", result.error)
    assert len(diary.told) == 15 + 4


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_finds_what_was_logged(tmp_path, cache):
    out = tmp_path / "out"
    for watch in (stop_after(6), None):
        options = {} if watch is None else {"watch": watch}
        try:
            logger = create_logger("tensorboard", out)
            result = run(CELL, tiny_task(), out, cache=cache, loggers=[logger], **options)
        except Interrupted:
            pass
    found = scalars(out / "tensorboard" / result.card.run_id)
    final = {name: found.pop(name) for name in list(found) if name.startswith("final/")}
    assert final["final/error"] == {210: pytest.approx(result.error)}
    assert final.keys() == {"final/error", *(f"final/{name}" for name in CORRUPTIONS)}
    expected = by_hand(result, out, cache)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-5), name


@pytest.mark.filterwarnings("ignore")
def test_mlflow_finds_what_was_logged(tmp_path, cache, monkeypatch):
    pytest.importorskip("mlflow", reason="pip install mlflow-skinny")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    logger = create_logger("mlflow", tmp_path)
    with pytest.raises(Interrupted):
        run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[logger], watch=stop_after(6))
    result = run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[logger])
    client = MlflowClient(tracking_uri=(tmp_path / "mlflow").as_uri())
    experiment = client.get_experiment_by_name("dab").experiment_id
    (found,) = client.search_runs([experiment], f"tags.`dab.run` = '{result.card.run_id}'")
    assert found.info.status == "FINISHED"
    assert found.data.params["seed"] == "0"
    assert found.data.metrics["final/error"] == pytest.approx(result.error)
    history = client.get_metric_history(found.info.run_id, "error")
    expected = by_hand(result, tmp_path, cache)["error"]
    assert {metric.step: metric.value for metric in history} == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore")
def test_wandb_takes_it_offline(tmp_path, cache, monkeypatch):
    pytest.importorskip("wandb", reason="pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = create_logger("wandb", tmp_path)
    result = run(CELL, tiny_task(), tmp_path, cache=cache, loggers=[logger])
    (file,) = tmp_path.glob(f"wandb/wandb/offline-run-*/run-{result.card.run_id}.wandb")
    content = file.read_bytes()
    assert b"final/gaussian_noise" in content
    assert b"admitted" in content


def test_a_logger_that_is_not_there_is_named(tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="unknown logger 'paper'; available: mlflow, tensorb"):
        create_logger("paper", tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    assert main(["run", "tent", "--out", str(tmp_path), "--log", "wandb"]) == 2
    assert capsys.readouterr().err.endswith("pip install 'dab-tta[wandb]'\n")


OWN = """
from dab.benchmark.running.loggers import register_logger

@register_logger("lines")
class Lines:
    def __init__(self, folder):
        self.file = folder
        folder.parent.mkdir(exist_ok=True)

    def _write(self, *words):
        with self.file.open("a") as file:
            print(*words, file=file)

    def start(self, card, seen):
        self._write("start", card.method, seen)

    def log(self, seen, metrics):
        self._write("log", seen)

    def finish(self, result):
        self._write("finish", result.card.method)
"""


def test_a_logger_of_ones_own_is_used_by_name(tmp_path):
    own, out = tmp_path / "own.py", tmp_path / "out"
    own.write_text(OWN)
    words = ["--samples", "64", "--corruptions", "fog", "--out", str(out), "--log", "lines"]
    words += ["--cache", str(tmp_path / "cache"), "--import", str(own)]
    for jobs in ("1", "2"):  # in this process, which imports it once, and in others
        command = [sys.executable, "-m", "dab", "bench", "--method", "tent", *words]
        subprocess.run([*command, "--jobs", jobs], check=True, capture_output=True)
        lines = (out / "lines").read_text().splitlines()
        assert lines == [
            line
            for method in ("source", "tent")
            for line in (f"start {method} 0", "log 64", f"finish {method}")
        ]
        shutil.rmtree(out)


def test_the_loggers_that_come_along_are_registered():
    assert {"mlflow", "tensorboard", "wandb"} <= set(LOGGERS)
