"""Results in object stores: the same runs as in a folder, and nothing half written."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dab.benchmark import Result, results
from dab.benchmark.running.progress_file import progresses
from dab.benchmark.running.run import CHECKPOINT, Interrupted
from dab.cli import main
from dab.report import gather, render
from dab.report.collect import NoRunsError
from dab.utils import files
from dab.utils.files import Location, location
from tests.support.benchmark_task import run, tiny_cell, tiny_task
from tests.support.cli import STREAM
from tests.support.report_runs import make_runs


@pytest.fixture
def store() -> Iterator[Location]:
    """An empty folder in a store that is in memory."""
    out = location(f"memory://{os.urandom(8).hex()}/results")
    yield out
    out.fs.rm(out.path.rpartition("/")[0], recursive=True)


def unmeasured(result: Result) -> dict[str, Any]:
    measured = ("seconds", "images_per_second", "peak_memory_mib")
    return {name: value for name, value in vars(result).items() if name not in measured}


def names(folder: Location) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_run_in_a_store_is_stopped_resumed_and_the_same_as_in_a_folder(store, tmp_path):
    cell, task = tiny_cell("dab", "correlated"), tiny_task()
    whole = run(cell, task, tmp_path / "out", cache=tmp_path / "cache")
    folder = store / whole.card.run_id
    seen: list[int] = []

    def stop(running, images, samples):
        if running.method == "dab":
            seen.append(images)
            if len(seen) == 6:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="after 6 of 15"):
        run(cell, task, store, cache=tmp_path / "cache", watch=stop)
    assert names(folder) == {CHECKPOINT, "progress.json"}
    (progress,) = progresses(store)
    assert (progress.card.run_id, progress.seen) == (folder.name, seen[5])
    (state,) = (run.state for run in gather(store).runs.values() if run.state is not None)
    assert state.seen == seen[5]
    resumed = run(cell, task, store, cache=tmp_path / "cache", watch=stop)
    assert len(seen) == 15
    assert names(folder) == {"result.json", "trace.npz"}
    assert unmeasured(resumed) == unmeasured(whole)
    assert (folder / "trace.npz").read_bytes() == (
        tmp_path / "out" / folder.name / "trace.npz"
    ).read_bytes()
    with (folder / "trace.npz").open("rb") as file, np.load(file) as trace:
        assert len(trace["predictions"]) == 210
    here = [unmeasured(result) for result in results(tmp_path / "out")]
    assert [unmeasured(result) for result in results(store)] == here
    assert run(cell, task, store, watch=stop) == resumed
    assert len(seen) == 15


@pytest.mark.usefixtures("tiny")
def test_the_command_writes_its_tables_into_a_store(store, capsys):
    command = ["run", "tent", *STREAM]
    assert main([*command, "--out", str(store)]) == 0
    assert f"Tables written to {store}/table.md, " in capsys.readouterr().out
    assert main([*command, "--out", "here"]) == 0
    table = (store / "table.md").read_text()
    assert table == Path("here/table.md").read_text()
    assert {"table.md", "table.csv", "table.json"} < names(store)


@pytest.mark.usefixtures("tiny")
def test_a_url_of_a_folder_is_that_folder(tmp_path):
    assert main(["run", "source", *STREAM, "--out", f"file://{tmp_path}/there"]) == 0
    assert (tmp_path / "there" / "table.md").exists()


def test_a_report_on_a_store_is_that_on_a_folder(store, tmp_path, capsys):
    folder = make_runs(tmp_path).rename(tmp_path / store.name)
    for file in folder.glob("*/*"):
        files.write(store / file.parent.name / file.name, file.read_bytes())
    assert gather(store) == gather(folder)
    assert main(["report", str(store)]) == 0
    assert f"Report written to {store}/report.html" in capsys.readouterr().out
    assert (store / "report.html").read_text() == render(gather(folder))
    assert main(["report", str(store), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == render(gather(folder))
    with pytest.raises(NoRunsError, match=f"there is no folder {store}/elsewhere"):
        gather(store / "elsewhere")


def test_what_is_not_finished_is_not_in_the_store(store):
    file = store / "result.json"

    def write_half() -> None:
        with files.aside(file) as unfinished:
            unfinished.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_half()
    assert not file.exists()
    files.write(file, "old")
    with pytest.raises(RuntimeError, match="power cut"):
        write_half()
    assert file.read_text() == "old"
    assert names(store) == {"result.json"}


@pytest.mark.parametrize(
    ("url", "culprit"),
    [
        ("sftp://host/results", "argument --out: sftp:// can expose half-written files: use a "),
        ("s3://bucket/results", "argument --out: s3://bucket/results cannot be opened: Install "),
    ],
)
def test_what_cannot_hold_results_is_named(url, culprit, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)  # though it be installed
    with pytest.raises(SystemExit):
        main(["run", "source", "--out", url])
    assert culprit in capsys.readouterr().err
