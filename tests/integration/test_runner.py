"""Runs against plain loops, cut short in every way, and told apart by their identity cards."""

from __future__ import annotations

import itertools
import json
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab import registry
from dab.benchmark import Cell, Clean, Result, Task, results
from dab.benchmark.results.errors import (
    error_of_tracks,
    errors_by_domain,
    errors_by_window,
    window_size,
)
from dab.benchmark.results.identity import DataCard, RunCard
from dab.benchmark.running.checkpoint import CHECKPOINT
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.interrupts import Interrupts
from dab.benchmark.running.progress_file import PROGRESS
from dab.benchmark.running.run import Interrupted, _Run, identity_card
from dab.benchmark.running.run import run as run_one
from dab.outputs import BatchPrior
from dab.outputs.output import OUTPUTS
from dab.streams import Batch, Domain, Setting, Stream
from dab.testing import same
from dab.utils import files
from dab.utils.fingerprint import fingerprint
from dab.utils.imports import import_own
from tests.support.benchmark_task import (
    CORRUPTIONS,
    OPTIONS,
    SOURCE_ERROR,
    Pictures,
    assert_same_runs,
    pictures,
    run,
    tiny_cell,
    tiny_task,
)

BATCHES = 15  # three domains of 70 images, in batches of 16


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def folder_of(result: Result, out: Path) -> Path:
    return out / result.card.run_id


# Numbers


def fresh(cell: Cell, task: Task) -> dab.Adapter:
    options = dict(cell.options)
    if cell.method == "eata":
        options["source_images"] = task.source_images()
    return dab.create(cell.method, task.model(), seed=cell.seed, **options)


def by_hand(cell: Cell, task: Task, cache: Path) -> dict[str, Any]:
    """Predict, count, adapt, an image at a time."""
    stream = stream_of(cell, task, cache)
    adapter = fresh(cell, task)
    predictions: list[int] = []
    wrong: list[bool] = []
    wrong_of: dict[str, list[bool]] = {}
    steps: list[dab.Step] = []
    domain = None
    for images, labels, domains in stream:
        if cell.setting.shift == "reset_each_shift" and domains[0].item() != domain:
            adapter = fresh(cell, task)
        domain = domains[0].item()
        for row, label, number in zip(adapter(images).tolist(), labels, domains, strict=True):
            not_numbers = [i for i, value in enumerate(row) if math.isnan(value)]
            predicted = not_numbers[0] if not_numbers else row.index(max(row))
            predictions.append(predicted)
            wrong.append(predicted != label.item())
            wrong_of.setdefault(cell.corruptions[number], []).append(wrong[-1])
        steps.append(adapter.last)
    errors = {name: 100 * sum(found) / len(found) for name, found in wrong_of.items()}
    windows = [wrong[at : at + cell.batch_size] for at in range(0, len(wrong), cell.batch_size)]
    updates = sum(step.updated for step in steps)
    return {
        "error": sum(errors.values()) / len(errors),
        "errors": {name: errors[name] for name in cell.corruptions},
        "windows": [100 * sum(window) / len(window) for window in windows],
        "updates": updates,
        "update_rate": updates / len(steps),
        "admitted": sum(step.admitted for step in steps),
        "skipped": sum(step.skipped for step in steps),
        "predictions": predictions,
        "steps": steps,
    }


def assert_as_by_hand(cell: Cell, task: Task, out: Path, cache: Path) -> dict[str, Any]:
    result = run(cell, task, out, cache=cache)
    expected = by_hand(cell, task, cache)
    for name in ("updates", "admitted", "skipped"):
        assert getattr(result, name) == expected[name], name
    for name in ("error", "errors", "windows", "update_rate"):
        assert getattr(result, name) == pytest.approx(expected[name], rel=1e-12), name
    assert list(result.errors) == list(cell.corruptions)
    assert result.window == cell.batch_size
    assert result.predictions == fingerprint(np.array(expected["predictions"], np.int32))
    with np.load(folder_of(result, out) / "trace.npz") as trace:
        assert trace["predictions"].tolist() == expected["predictions"]
        for name in ("samples", "admitted", "replaced", "fill", "updated", "skipped"):
            assert trace[name].tolist() == [getattr(step, name) for step in expected["steps"]]
        losses = [math.nan if step.loss is None else step.loss for step in expected["steps"]]
        np.testing.assert_array_equal(trace["loss"], losses)
    return expected


SETTINGS = ["continual", "correlated", "correlated:0.5", "mixed", "mixed+correlated"]


@pytest.mark.parametrize("setting", [*SETTINGS, "reset_each_shift", "reset_each_shift+correlated"])
@pytest.mark.parametrize("method", ["source", "tent", "dab", "note", "rotta", "eata", "lame"])
def test_numbers_are_those_of_plain_loops(method, setting, tmp_path, cache):
    found = assert_as_by_hand(tiny_cell(method, setting, seed=3), tiny_task(), tmp_path, cache)
    assert (found["updates"] > 0) == (method not in ("source", "lame"))


@pytest.mark.parametrize("method", ["source", "dab"])
def test_numbers_of_a_gradual_stream_are_those_of_plain_loops(method, tmp_path, cache):
    cell = tiny_cell(method, "gradual", severity=2)
    found = assert_as_by_hand(cell, tiny_task(20), tmp_path, cache)
    assert len(found["predictions"]) == len(CORRUPTIONS) * 3 * 20


def test_a_gradual_corruption_grows_and_fades(cache):
    domains = tiny_task().data.domains(["contrast", "fog"], 4, Setting("gradual"), cache)
    assert [domain.name for domain in domains] == ["contrast", "fog"]
    for domain in domains:
        assert [part.severity for part in domain.parts] == [1, 2, 3, 4, 3, 2, 1]
        assert {part.corruption for part in domain.parts} == {domain.name}


class Brittle(nn.Module):
    """Says nothing that is a number about dark batches."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images) * (math.nan if images.mean() < 0.49 else 1)


def test_batches_that_nothing_can_be_learned_from_are_counted(tmp_path, cache):
    tiny = tiny_task()
    task = replace(tiny, model=lambda: Brittle(tiny.model()))
    found = assert_as_by_hand(tiny_cell("tent"), task, tmp_path, cache)
    assert 0 < found["skipped"] == BATCHES - found["updates"] < BATCHES


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    batch_size=st.integers(1, 7),
    shift=st.sampled_from(["continual", "mixed"]),
    seed=st.integers(0, 2**31),
)
def test_errors_of_any_stream_are_those_of_plain_loops(sizes, batch_size, shift, seed):
    domains = [Domain(f"d{number}", [pictures(size)]) for number, size in enumerate(sizes)]
    stream = Stream(domains, Setting(shift), seed, batch_size)
    wrong = np.random.default_rng(seed).random(stream.samples) < 0.5
    for number, error in enumerate(errors_by_domain(stream, wrong).values()):
        found = [w for w, d in zip(wrong, stream.domain, strict=True) if d == number]
        assert error == pytest.approx(100 * sum(found) / sizes[number])
    windows = [wrong[at : at + batch_size] for at in range(0, len(wrong), batch_size)]
    expected = [100 * sum(window) / len(window) for window in windows]
    assert errors_by_window(wrong, batch_size) == pytest.approx(expected)


@given(
    frames=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40
    )
)
def test_the_error_of_tracks_is_that_of_plain_loops(frames):
    def winner(votes):
        return min(set(votes), key=lambda vote: (-votes.count(vote), vote))

    tracks, labels, predictions = (list(column) for column in zip(*frames, strict=True))
    stream = SimpleNamespace(tracks=np.array(tracks), labels=np.array(labels))
    wrong = 0
    for track in set(tracks):
        own = [frame for frame, of in enumerate(tracks) if of == track]
        answer, truth = (winner([of[frame] for frame in own]) for of in (predictions, labels))
        wrong += answer != truth
    expected = 100 * wrong / len(set(tracks))
    assert error_of_tracks(stream, np.array(predictions)) == pytest.approx(expected)
    assert error_of_tracks(SimpleNamespace(tracks=None), np.array(predictions)) is None


@given(samples=st.integers(1, 10**6), batch_size=st.integers(1, 300))
def test_a_window_is_the_multiple_of_a_batch_nearest_to_a_150th(samples, batch_size):
    window = window_size(SimpleNamespace(samples=samples, batch_size=batch_size))
    assert window % batch_size == 0
    wanted = samples / 150 / batch_size
    batches = window // batch_size
    assert batches >= 1
    assert abs(batches - wanted) <= 0.5 or (batches == 1 and wanted < 1)


def test_what_is_measured_is_plausible(tmp_path, cache):
    began = time.perf_counter()
    result = run(tiny_cell("dab"), tiny_task(), tmp_path, cache=cache)
    assert 0 < result.seconds < time.perf_counter() - began
    assert result.images_per_second == pytest.approx(210 / result.seconds)
    assert 100 < result.peak_memory_mib < 100_000  # torch alone takes more than the first


PEAKS = """
import numpy as np
from dab.benchmark.running import memory
before = memory.peak_mib()
block = np.ones(300 << 20, np.uint8)
high = memory.peak_mib()
del block
memory.restart_peak()
print(before, high, memory.peak_mib())
"""


def test_the_peak_of_memory_is_that_since_the_restart():
    # In a process of its own: this one may have had more before than it will have here.
    printed = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, check=True).stdout
    before, high, after = map(float, printed.split())
    assert high > before + 200
    if after == high:
        pytest.skip("the system does not forget peaks")
    assert after < high - 200


def test_images_made_ahead_by_a_worker_give_the_same_numbers(tmp_path):
    for name, workers in (("ahead", None), ("in turn", 0)):
        folder = tmp_path / name
        run(tiny_cell("tent"), tiny_task(), folder / "out", cache=folder / "c", workers=workers)
    assert_same_runs(tmp_path / "ahead" / "out", tmp_path / "in turn" / "out")


# Runs that are there


class Diary:
    """Whom a run told what."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int, int]] = []

    def __call__(self, cell: Cell, seen: int, samples: int) -> None:
        self.entries.append((cell.method, seen, samples))

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.entries]


def test_a_watch_is_told_of_every_batch(tmp_path, cache):
    diary = Diary()
    run(tiny_cell("source"), tiny_task(), tmp_path, cache=cache, watch=diary)
    ends = [start + at for start in (0, 70, 140) for at in (16, 32, 48, 64, 70)]
    assert diary.entries == [("source", seen, 210) for seen in ends]


def test_a_second_run_reads_the_result(tmp_path, cache):
    first = run(tiny_cell("dab"), tiny_task(), tmp_path, cache=cache)
    file = folder_of(first, tmp_path) / "result.json"
    written = file.stat().st_mtime_ns
    diary = Diary()
    assert run(tiny_cell("dab"), tiny_task(), tmp_path, cache=cache, watch=diary) == first
    assert not diary.entries
    assert file.stat().st_mtime_ns == written


@pytest.mark.parametrize(("method", "source_error"), [("tent", None), ("source", 50.0)])
def test_a_run_that_is_compared_with_the_wrong_thing_is_named(method, source_error, tmp_path):
    with pytest.raises(ValueError, match=rf"^{method}.*: source_error must be given for all runs"):
        run_one(tiny_cell(method), tiny_task(), tmp_path, source_error=source_error)


def test_results_are_those_of_the_finished_runs(tmp_path, cache):
    tent = run(tiny_cell("tent"), tiny_task(), tmp_path, cache=cache)
    source = run(tiny_cell("source"), tiny_task(), tmp_path, cache=cache)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / CHECKPOINT).touch()
    assert sorted(results(tmp_path), key=lambda result: result.card.method) == [source, tent]


# Runs that are cut short


class Stop:
    """Does something after so many batches of the method itself."""

    def __init__(self, after: int, action: Any) -> None:
        self.after, self.action = after, action

    def __call__(self, cell: Cell, seen: int, samples: int) -> None:
        if cell.method != "source":
            self.after -= 1
            if not self.after:
                self.action()


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


METHODS = ["dab", "rotta", "note", "cotta"]


def work(connection: Connection, cell: Cell, out: Path, cache: Path, batches: int) -> None:
    """What a process does that is to be killed: it gets one batch further than told."""
    torch.set_num_threads(1)

    def watch(running: Cell, seen: int, samples: int) -> None:
        connection.send(running.method)
        if running.method == cell.method:
            nonlocal batches
            batches -= 1
            if batches < 0:
                time.sleep(60)

    run(cell, tiny_task(), out, cache=cache, checkpoint_every=2, watch=watch)


# A process that has imported everything makes the others, or they would mostly import.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.integration.test_runner", "torch._dynamo"])


def kill(cell: Cell, out: Path, cache: Path, batches: int, delay: float) -> None:
    """Start a run in a process and kill it some time after a number of the method's batches."""
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(sender, cell, out, cache, batches))
    process.start()
    sender.close()
    while batches:
        batches -= receiver.recv() == cell.method
    time.sleep(delay)
    process.kill()
    process.join()
    receiver.close()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("method", ["source", *METHODS])
def test_a_killed_run_goes_on_and_ends_with_the_same_bits(method, tmp_path, cache):
    cell = tiny_cell(method, "correlated")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(cell, tiny_task(), whole, cache=cache)
    rng = random.Random(method)
    for _ in range(3):
        kill(cell, killed, cache, rng.randint(3, 4), rng.uniform(0, 0.02))
    diary = Diary()
    run(cell, tiny_task(), killed, cache=cache, watch=diary)
    assert 0 < len(diary.entries) < BATCHES
    assert set(diary.methods) == {method}
    assert_same_runs(killed, whole)


@pytest.mark.parametrize("stop", [interrupt, terminate])
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupted_run_goes_on_and_ends_with_the_same_bits(method, stop, tmp_path, cache):
    cell = tiny_cell(method)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    folder = folder_of(run(cell, tiny_task(), whole, cache=cache), stopped)
    handlers = [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)]
    for more, done in ((1, 1), (3, 4), (10, 14)):
        with pytest.raises(Interrupted, match=f"stopped after {done} of {BATCHES} batches"):
            run(cell, tiny_task(), stopped, cache=cache, watch=Stop(more, stop))
        assert {file.name for file in folder.iterdir()} == {CHECKPOINT, PROGRESS}
        assert [signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)] == handlers
    diary = Diary()
    run(cell, tiny_task(), stopped, cache=cache, watch=diary)
    assert diary.entries == [(method, 210, 210)]
    assert_same_runs(stopped, whole)


def test_an_interrupt_in_the_last_batch_is_not_lost_on_the_runs_to_come(tmp_path, cache):
    cell = tiny_cell("tent")
    with pytest.raises(Interrupted, match=f"stopped after {BATCHES} of {BATCHES} batches"):
        run(cell, tiny_task(), tmp_path / "a", cache=cache, watch=Stop(BATCHES, interrupt))
    run(cell, tiny_task(), tmp_path / "b", cache=cache)
    assert_same_runs(tmp_path / "a", tmp_path / "b")


def test_workers_may_die_of_the_same_signal(tmp_path, cache):
    """As when a scheduler signals all processes of a job: torch then raises wherever it can."""

    def terminate_all() -> None:
        terminate()
        workers = multiprocessing.active_children()
        assert workers
        for worker in workers:
            worker.kill()
            os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)  # left for torch to find

    cell, stopped = tiny_cell("tent"), tmp_path / "stopped"
    stop = Stop(4, terminate_all)
    with pytest.raises(Interrupted, match=f"stopped after 4 of {BATCHES} batches"):
        run(cell, tiny_task(), stopped, cache=tmp_path / "cache", workers=1, watch=stop)
    run(cell, tiny_task(), stopped, cache=cache)
    run(cell, tiny_task(), tmp_path / "whole", cache=cache)
    assert_same_runs(stopped, tmp_path / "whole")


@pytest.mark.parametrize("error", [RuntimeError, EOFError, ConnectionRefusedError])
@pytest.mark.parametrize("after", [0, 3])
def test_a_loader_may_fail_after_an_interrupt(error, after, tmp_path, cache, monkeypatch):
    """In one of these ways if its worker was killed. The batches before are not lost."""
    stopped, batches = tmp_path / "stopped", Stream.batches

    def fail(self: Stream, *arguments: Any) -> Iterator[Batch]:
        yield from itertools.islice(batches(self, *arguments), after)
        terminate()
        raise error

    cell = tiny_cell("tent")
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "batches", fail)
        with pytest.raises(Interrupted, match=f"stopped after {after} of {BATCHES} batches"):
            run(cell, tiny_task(), stopped, cache=cache)
    diary = Diary()
    run(cell, tiny_task(), stopped, cache=cache, watch=diary)
    assert len(diary.entries) == BATCHES - after
    run(cell, tiny_task(), tmp_path / "whole", cache=cache)
    assert_same_runs(stopped, tmp_path / "whole")


def test_an_error_while_stopping_is_reported(tmp_path, cache, monkeypatch):
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("dab.benchmark.running.run.save_checkpoint", fail)
    with pytest.raises(OSError, match="no space left"):
        run(tiny_cell("tent"), tiny_task(), tmp_path, cache=cache, watch=Stop(4, interrupt))


def test_the_next_run_reports_dead_workers_again():
    heard: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise RuntimeError

    before = signal.signal(signal.SIGCHLD, handler)
    try:
        for _ in range(2):
            with Interrupts():
                with pytest.raises(RuntimeError):
                    signal.raise_signal(signal.SIGCHLD)
                terminate()
                signal.raise_signal(signal.SIGCHLD)
            signal.raise_signal(signal.SIGCHLD)
        assert len(heard) == 6
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def foreground() -> Iterator[None]:
    """Ctrl-C as a foreground process hears it; one in the background inherits deafness to it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_a_second_interrupt_ends_at_once(tmp_path, cache):
    def twice() -> None:
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt) as caught:
        run(tiny_cell("tent"), tiny_task(), tmp_path, cache=cache, watch=Stop(5, twice))
    assert caught.type is KeyboardInterrupt


def test_a_run_in_a_thread_leaves_signals_alone(tmp_path, cache):
    found: list[Result] = []
    cell = tiny_cell("source")
    thread = threading.Thread(
        target=lambda: found.append(run(cell, tiny_task(), tmp_path, cache=cache))
    )
    thread.start()
    thread.join()
    assert found == [run(cell, tiny_task(), tmp_path, cache=cache)]


def test_a_failed_run_goes_on_from_its_last_checkpoint(tmp_path, cache):
    def fail() -> None:
        raise RuntimeError("out of luck")

    cell = tiny_cell("dab")
    failed, whole = tmp_path / "failed", tmp_path / "whole"
    with pytest.raises(RuntimeError, match="out of luck"):
        run(cell, tiny_task(), failed, cache=cache, checkpoint_every=4, watch=Stop(11, fail))
    diary = Diary()
    run(cell, tiny_task(), failed, cache=cache, watch=diary)
    assert len(diary.entries) == BATCHES - 8
    run(cell, tiny_task(), whole, cache=cache)
    assert_same_runs(failed, whole)


def test_a_run_that_was_killed_after_its_last_batch_only_writes_its_result(tmp_path, cache):
    cell, task = tiny_cell("source"), tiny_task()
    result = run(cell, task, tmp_path / "whole", cache=cache)
    stream = stream_of(cell, task, cache)
    killed = tmp_path / "killed"
    started = _Run(cell, task, stream, result.card, folder_of(result, killed))
    for batch in stream:
        started.evaluation.step(batch)
    started._save()
    diary = Diary()
    run(cell, task, killed, cache=cache, watch=diary)
    assert not diary.entries
    assert_same_runs(killed, tmp_path / "whole")


def test_what_a_killed_process_left_half_written_is_removed(tmp_path, cache):
    cell = tiny_cell("tent")
    result = run(cell, tiny_task(), tmp_path / "whole", cache=cache)
    killed = tmp_path / "killed"
    folder = folder_of(result, killed)
    folder.mkdir(parents=True)
    for name in (CHECKPOINT, "trace.npz", "result.json"):
        (folder / f"{name}.{socket.gethostname()}.part").write_text("half")
    run(cell, tiny_task(), killed, cache=cache)
    assert_same_runs(killed, tmp_path / "whole")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """Results with a run of dab that was stopped after six batches."""
    out = tmp_path_factory.mktemp("stopped")
    with pytest.raises(Interrupted):
        run(tiny_cell("dab"), tiny_task(), out, cache=cache, watch=Stop(6, interrupt))
    return out


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-1],
    "text": lambda content: b"this is no checkpoint",
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_starts_again(damage, stopped, tmp_path, cache, caplog):
    out, whole = tmp_path / "out", tmp_path / "whole"
    shutil.copytree(stopped, out)
    (file,) = out.glob(f"*/{CHECKPOINT}")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    diary = Diary()
    with caplog.at_level(logging.WARNING, "dab"):
        run(tiny_cell("dab"), tiny_task(), out, cache=cache, watch=diary)
    assert len(diary.entries) == BATCHES
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"{file} is not usable, so the run starts over: ")
    run(tiny_cell("dab"), tiny_task(), whole, cache=cache)
    assert_same_runs(out, whole)


def test_a_checkpoint_of_another_run_starts_again(stopped, tmp_path, cache, caplog):
    cell = tiny_cell("tent")
    whole, out = tmp_path / "whole", tmp_path / "out"
    folder = folder_of(run(cell, tiny_task(), whole, cache=cache), out)
    folder.mkdir(parents=True)
    (file,) = stopped.glob(f"*/{CHECKPOINT}")
    shutil.copy(file, folder)
    run(cell, tiny_task(), out, cache=cache)
    assert "so the run starts over: it belongs to run " in caplog.text
    assert_same_runs(out, whole)


def progress(started: _Run) -> list[Any]:
    """All that a checkpoint is there to bring back."""
    evaluation = started.evaluation
    steps = evaluation.steps.numpy().tobytes()  # with losses that are not numbers
    adapter = evaluation.adapter.state_dict()
    recorded = started.recorder.state_dict()
    return [adapter, evaluation.done, evaluation.seconds, evaluation.predictions, steps, recorded]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_single_wrong_bit_of_a_checkpoint_is_believed(place, bit, stopped, tmp_path, cache):
    cell, task = tiny_cell("dab"), tiny_task()
    stream = stream_of(cell, task, cache)
    (file,) = stopped.glob(f"*/{CHECKPOINT}")
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (tmp_path / CHECKPOINT).write_bytes(content)
    card = identity_card(cell, task, stream, SOURCE_ERROR)
    assert _Run(cell, task, stream, card, file.parent).evaluation.done == 6
    found = _Run(cell, task, stream, card, tmp_path)
    assert same(progress(found), progress(_Run(cell, task, stream, card, tmp_path / "none")))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff", b'{"error": 3}', b"null"])
def test_a_damaged_result_is_named(content, tmp_path, cache):
    cell = tiny_cell("source")
    file = folder_of(run(cell, tiny_task(), tmp_path, cache=cache), tmp_path) / "result.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"result\.json is not usable .*: remove it") as caught:
        run(cell, tiny_task(), tmp_path, cache=cache)
    assert str(file) in str(caught.value)
    file.unlink()
    assert run(cell, tiny_task(), tmp_path, cache=cache).error > 0


def test_checkpoints_come_at_least_after_every_batch(tmp_path, cache):
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        run(tiny_cell("source"), tiny_task(), tmp_path, cache=cache, checkpoint_every=0)


# Files


def test_a_file_that_was_not_finished_changes_nothing(tmp_path):
    file = tmp_path / "numbers.txt"
    files.write(file, "old")

    def write_half() -> None:
        with files.aside(file) as unfinished:
            unfinished.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_half()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    files.write(file, b"new")
    assert file.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [file]


# Identity cards


def card_of(cell: Cell, task: Task, cache: Path) -> RunCard:
    return identity_card(cell, task, stream_of(cell, task, cache), source_error=12.5)


def with_other_pixel(task: Task) -> Task:
    pixels = task.data.images.batch(range(len(task.data.images))).copy()
    pixels[-1, -1, -1, -1] ^= 1
    return replace(task, data=Clean(Pictures(pixels, task.data.images.labels)))


def with_other_label(task: Task) -> Task:
    labels = task.data.images.labels.copy()
    labels[-1] = (labels[-1] + 1) % 6
    return replace(task, data=Clean(Pictures(task.data.images.batch(range(len(labels))), labels)))


def with_card(task: Task, **changes: Any) -> Task:
    return replace(task, model_card={**task.model_card, **changes})


def with_other_weight(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def other() -> nn.Module:
        net = model()
        with torch.no_grad():
            next(net.parameters()).view(-1)[0] += 1e-6
        return net

    return other


OTHER_NUMBER = {int: lambda v: v + 1, float: lambda v: v / 2 if v else 0.1}
OTHER_WORD = {
    "admission": "running",
    "trigger": "any",
    "filling": "adapt",
    "labels": "sequence",
    "episodic": True,
    "guard": "warn",
    "storage": "uint8",
    "device": "cpu",
    "output": "lame",
    "features": "0",
    "optimizer": "adam",
    "statistics": "batch",
}


def test_each_single_change_has_a_key_of_its_own(cache, monkeypatch):
    cell, task = tiny_cell("dab", "correlated"), tiny_task()
    cells = {
        "seed": replace(cell, seed=1),
        "setting": replace(cell, setting=Setting.parse("continual")),
        "delta": replace(cell, setting=Setting.parse("correlated:0.1")),
        "another delta": replace(cell, setting=Setting.parse("correlated:0.10000000000000002")),
        "batch size": replace(cell, batch_size=17),
        "severity": replace(cell, severity=4),
        "order of domains": replace(cell, corruptions=CORRUPTIONS[::-1]),
        "fewer domains": replace(cell, corruptions=CORRUPTIONS[:2]),
    }
    for option, value in cell.all_options().items():
        number = OTHER_NUMBER.get(type(value))
        other = number(value) if number else OTHER_WORD[option]
        cells[option] = replace(cell, options={**cell.options, option: other})
    tasks = {
        "pixel": with_other_pixel(task),
        "label": with_other_label(task),
        "fewer images": tiny_task(69),
        "name of the data": replace(task, name="small"),
        "name of the model": with_card(task, name="tests/other"),
        "weights": replace(task, model=with_other_weight(task.model)),
        "preprocessing": with_card(task, preprocessing={"mean": [0.5]}),
    }
    cards = {"unchanged": card_of(cell, task, cache)}
    cards |= {change: card_of(other, task, cache) for change, other in cells.items()}
    cards |= {change: card_of(cell, other, cache) for change, other in tasks.items()}
    for module in (torch, np):
        with monkeypatch.context() as patch:
            patch.setattr(module, "__version__", "0.0.0")
            cards[f"version of {module.__name__}"] = card_of(cell, task, cache)
    keys = {change: card.run_id for change, card in cards.items()}
    twice = [change for change, count in Counter(keys.values()).items() if count > 1]
    assert not twice, [change for change, found in keys.items() if found in twice]
    assert len(keys) == 1 + 8 + len(cell.all_options()) + 7 + 2


def test_what_cannot_change_a_number_changes_no_key(cache, monkeypatch):
    cell, task = tiny_cell("dab", "correlated"), tiny_task()
    card = card_of(cell, task, cache)
    cards = [replace(card, source_error=12.6), replace(card, published_as="imagenet_c")]
    with monkeypatch.context() as patch:
        patch.setattr(dab, "__version__", "0.0.0")
        cards.append(card_of(cell, task, cache))
    for other in cards:
        assert (other.run_id, other.group_id) == (card.run_id, card.group_id)


def test_a_result_is_compared_with_what_is_known_now(tmp_path, cache):
    result = run(tiny_cell("tent"), tiny_task(), tmp_path, cache=cache)
    outdated = replace(result.card, source_error=1.0, published_as="imagenet_c")
    replace(result, card=outdated).write(tmp_path / result.card.run_id)
    assert run(tiny_cell("tent"), tiny_task(), tmp_path, cache=cache) == result


OWN_METHOD = """
import dab
from dab.methods import TENT

@dab.register("mine")
class Mine(TENT):
    mark = {mark}
"""
OWN_OUTPUT = """
from dab.outputs import BatchPrior, register_output

@register_output("mine")
class Mine(BatchPrior):
    mark = {mark}
"""


@pytest.mark.parametrize(
    ("text", "method", "options"),
    [(OWN_METHOD, "mine", {}), (OWN_OUTPUT, "tent", {"output": "mine"})],
)
def test_own_code_that_is_rewritten_is_another_run(text, method, options, tmp_path, cache):
    file, keys = tmp_path / "mine.py", set()
    with registry.METHODS.scope(), OUTPUTS.scope():
        for mark in (1, 2):
            file.write_text(text.format(mark=mark))
            import_own(str(file))
            cell = Cell(method, options, data="tiny", corruptions=CORRUPTIONS)
            keys.add(card_of(cell, tiny_task(), cache).run_id)
    assert len(keys) == 2


def test_other_source_images_are_another_run_for_those_who_ask_for_them(cache):
    task = tiny_task()
    other = replace(task, source_images=lambda: task.source_images() / 2)
    for method, asks in (("eata", True), ("tent", False)):
        keys = {card_of(tiny_cell(method), one, cache).run_id for one in (task, other)}
        assert len(keys) == 1 + asks


def shuffled(card: Any, rng: random.Random) -> Any:
    if not isinstance(card, dict):
        return card
    items = [(name, shuffled(value, rng)) for name, value in card.items()]
    rng.shuffle(items)
    return dict(items)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_the_order_of_a_card_does_not_matter(cache, rng):
    card = card_of(tiny_cell("dab"), tiny_task(), cache)
    again = RunCard.from_json(shuffled(json.loads(json.dumps(card.to_json())), rng))
    assert again == card
    assert again.run_id == card.run_id
    domains = replace(card.data, domains=card.data.domains[::-1])
    assert replace(card, data=domains).run_id != card.run_id


def test_a_run_has_a_card_with_everything_and_a_folder_of_its_name(tmp_path, cache):
    cell, task = tiny_cell("dab", "correlated", seed=3), tiny_task()
    result = run(cell, task, tmp_path, cache=cache)
    source = run(tiny_cell("source", "correlated", seed=3), task, tmp_path, cache=cache)
    card = result.card
    assert RunCard.from_json(json.loads(json.dumps(card.to_json()))) == card
    assert {folder.name for folder in tmp_path.iterdir()} == {card.run_id, source.card.run_id}
    assert Result.read(tmp_path / card.run_id) == result
    assert card.method == "dab"
    assert card.options == cell.all_options()
    assert {"capacity", "ensemble", "trigger", "output"} <= card.options.keys()
    assert card.options.items() >= OPTIONS["dab"].items()
    assert card.data == DataCard(
        "tiny", stream_of(cell, task, cache).fingerprint, 210, tuple(CORRUPTIONS), 5
    )
    assert {"name": card.model.name, **card.model.details} == task.model_card
    assert card.model.weights == task.weights
    assert (card.setting, card.seed, card.batch_size) == ("correlated", 3, 16)
    assert card.versions == {
        "dab": dab.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    assert card.source_error == SOURCE_ERROR
    assert source.card.is_source
    assert not card.is_source


def test_threads_are_in_the_card_too(cache):
    cell, task = tiny_cell("source"), tiny_task()
    first = card_of(cell, task, cache)
    other = card_of(replace(cell, compute=replace(cell.compute, threads=2)), task, cache)
    assert other == replace(first, compute=replace(first.compute, threads=2))
    assert "threads" not in replace(cell.compute, device="cuda").card


def test_ids_group_runs_by_seed_and_by_stream(cache):
    task = tiny_task()
    card, seed, tent, setting = (
        card_of(cell, task, cache)
        for cell in (
            tiny_cell("dab"),
            tiny_cell("dab", seed=1),
            tiny_cell("tent"),
            tiny_cell("dab", "mixed"),
        )
    )
    assert len({one.run_id for one in (card, seed, tent, setting)}) == 4
    assert [one.group_id == card.group_id for one in (seed, tent, setting)] == [True, False, False]
    assert [one.stream_id == card.stream_id for one in (seed, tent, setting)] == [True, True, False]
    assert [one.source_id == card.source_id for one in (seed, tent, setting)] == [
        False,
        True,
        False,
    ]


def test_an_option_that_no_card_can_hold_is_named(tmp_path, cache):
    cell = replace(tiny_cell("source"), options={"output": BatchPrior()})
    with pytest.raises(ValueError, match="source's option output must be a plain value"):
        run(cell, tiny_task(), tmp_path, cache=cache)


def test_a_corruption_that_comes_twice_is_named():
    with pytest.raises(ValueError, match="corruption 'fog' is named more than once"):
        Cell("dab", corruptions=["fog", "snow", "fog"])
