"""What a run records of its buffer, against images found again by their pixels."""

from __future__ import annotations

import json
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dab.benchmark.results.errors import errors_by_window
from dab.benchmark.results.result import Problem
from dab.benchmark.running import recorder as record
from dab.benchmark.running.evaluation import Evaluation, stream_of
from dab.benchmark.running.progress_file import PROGRESS, ProgressFile, progresses
from dab.benchmark.running.recorder import Recorder
from dab.benchmark.running.run import Interrupted, identity_card
from dab.buffers import BalancedPolicy, Buffer, ImageStorage, PBRSPolicy
from dab.data.images import to_tensor
from dab.outputs import Markov
from dab.streams import Setting
from dab.utils import files
from tests.support.benchmark_task import run, tiny_cell, tiny_task
from tests.support.nets import CLASSES

BUFFERED = ["dab", "note", "rotta"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def as_bytes(image: torch.Tensor) -> bytes:
    return (image * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy().tobytes()


@pytest.mark.parametrize("setting", ["correlated", "reset_each_shift"])
@pytest.mark.parametrize("method", BUFFERED)
def test_every_look_finds_what_the_pixels_say(method, setting, cache):
    cell, task = tiny_cell(method, setting), tiny_task()
    stream = stream_of(cell, task, cache)
    evaluation, recorder = Evaluation(cell, task, stream), Recorder(stream)
    batch_of: dict[bytes, int] = {}
    expected: dict[str, list] = {"ages": [], "classes": [], "batch": []}
    for number, batch in enumerate(stream):
        batch_of |= {as_bytes(image): number for image in batch.images}
        evaluation.step(batch)
        recorder.note(batch, evaluation)
        buffer = evaluation.adapter.buffer
        assert buffer is not None
        held = buffer.read(torch.arange(len(buffer)))
        now = stream.position(number + 1)
        came = [batch_of[as_bytes(image)] for image in held]
        ages = sorted(now - stream.position(call + 1) for call in came)
        n = len(ages)
        ranks = [0, -(-n // 4) - 1, -(-n // 2) - 1, -(-3 * n // 4) - 1, n - 1]
        expected["ages"].append([ages[rank] for rank in ranks])
        counts = Counter(buffer.labels)
        expected["classes"].append([counts[label] for label in range(CLASSES)])
        shown = Counter(batch.labels.tolist())
        expected["batch"].append([shown[label] for label in range(CLASSES)])
    found = recorder.arrays()
    assert found["look_at"].tolist() == [stream.position(n + 1) for n in range(len(stream))]
    assert found["buffer_classes"].tolist() == expected["classes"]
    assert found["batch_classes"].tolist() == expected["batch"]
    assert found["buffer_ages"].tolist() == expected["ages"]
    assert max(ages for _, _, _, _, ages in expected["ages"]) > 32  # some stay for long


def test_shots_show_the_buffer_by_label_and_the_batch_as_it_came(cache):
    cell, task = tiny_cell("dab", "correlated"), tiny_task()
    stream = stream_of(cell, task, cache)
    evaluation, recorder = Evaluation(cell, task, stream), Recorder(stream)
    held, shown = {}, {}
    for number, batch in enumerate(stream):
        evaluation.step(batch)
        recorder.note(batch, evaluation)
        buffer = evaluation.adapter.buffer
        images = [as_bytes(image) for image in buffer.read(torch.arange(len(buffer)))]
        held[stream.position(number + 1)] = sorted(zip(buffer.labels, images, strict=True))
        shown[stream.position(number + 1)] = batch
    found = recorder.arrays()
    assert len(found["shot_at"]) == record.SHOTS
    for at, images, labels, raw, raw_labels in zip(
        *(found[name] for name in ("shot_at", "buffer_images", "buffer_labels")),
        *(found[name] for name in ("batch_images", "batch_labels")),
        strict=True,
    ):
        count = len(held[at])
        assert (labels[count:] == -1).all()
        assert not images[count:].any()
        assert (np.diff(labels[:count]) >= 0).all()
        there = [
            (label, image.tobytes())
            for label, image in zip(labels.tolist(), images[:count], strict=False)
        ]
        assert sorted(there) == held[at]
        size = len(shown[at].labels)
        assert raw_labels[:size].tolist() == shown[at].labels.tolist()
        assert torch.equal(to_tensor(raw[:size]), shown[at].images)


def test_a_large_buffer_is_shown_by_an_even_choice(monkeypatch, cache):
    monkeypatch.setattr(record, "IMAGES", 5)
    cell, task = tiny_cell("note"), tiny_task()
    stream = stream_of(cell, task, cache)
    evaluation, recorder = Evaluation(cell, task, stream), Recorder(stream)
    for number, batch in enumerate(stream):
        evaluation.step(batch)
        recorder.note(batch, evaluation)
        if number in recorder.shots:
            labels = sorted(evaluation.adapter.buffer.labels)
    last = recorder.arrays()["buffer_labels"][-1].tolist()
    assert last == [labels[rank] for rank in (0, 4, 8, 11, 15)]


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((3, 8, 8), (8, 8)),
        ((1, 128, 64), (64, 32)),
        ((4, 100, 300), (21, 64)),
        ((3, 1, 640), (1, 64)),
    ],
)
def test_pictures_are_small_and_in_color(shape, small):
    images = torch.rand(2, *shape)
    found = record._small(images)
    assert found.shape == (record.IMAGES, *small, 3)
    assert found.dtype == torch.uint8
    mean = images[:, :3].mean(dim=(2, 3)).expand(-1, 3) * 255
    assert (found[:2].float().mean(dim=(1, 2)) - mean).abs().max() < 3
    assert record._small(images[:0]).shape == found.shape


@pytest.mark.parametrize("method", ["source", "tent", "eata"])
def test_methods_without_a_buffer_leave_none_of_it(method, tmp_path, cache):
    result = run(tiny_cell(method), tiny_task(), tmp_path, cache=cache)
    with np.load(tmp_path / result.card.run_id / "trace.npz") as trace:
        noted = ("buffer", "batch", "look", "shot", "share", "span")
        assert not [name for name in trace if name.startswith(noted)]
        assert trace["domain_sizes"].tolist() == [70, 70, 70]


def with_output(method: str, output: str):
    cell = tiny_cell(method, "correlated")
    return replace(cell, options={**cell.options, "output": output})


@pytest.mark.parametrize("window", ["", "+window:24"])
def test_spans_and_shares_are_those_of_the_correction(window, monkeypatch, cache):
    monkeypatch.setattr(record, "SPAN", 60)
    cell, task = with_output("tent", "markov"), tiny_task()
    cell = replace(cell, setting=Setting.parse(f"correlated{window}"))
    stream = stream_of(cell, task, cache)
    evaluation, recorder = Evaluation(cell, task, stream), Recorder(stream)
    before: list[int] = []
    shares = []
    for number, batch in enumerate(stream):
        evaluation.step(batch)
        recorder.note(batch, evaluation)
        new = stream.position(number + 1) - stream.position(number)
        before += evaluation.adapter.uncorrected.argmax(dim=1).tolist()[-new:]
        shares.append([round(1000 * x) for x in evaluation.adapter.output.shares().values()])
    found = recorder.arrays()
    assert found["shares_at"].tolist() == [stream.position(n + 1) for n in range(len(stream))]
    assert found["shares"].tolist() == shares
    places = [*range(5, 65), *range(75, 135), *range(145, 205)]  # around 35, 105 and 175 of 210
    after = evaluation.predictions.tolist()
    assert found["spans"].tolist() == [
        [at, stream.labels[at], before[at], after[at]] for at in places
    ]
    assert before != after


def test_a_correction_without_shares_leaves_spans_alone(tmp_path, cache):
    result = run(with_output("source", "batch_prior"), tiny_task(), tmp_path, cache=cache)
    with np.load(tmp_path / result.card.run_id / "trace.npz") as trace:
        assert "spans" in trace
        assert not [name for name in trace if name.startswith("share")]
    result = run(with_output("source", "markov"), tiny_task(), tmp_path, cache=cache)
    with np.load(tmp_path / result.card.run_id / "trace.npz") as trace:
        assert trace["share_names"].tolist() == list(Markov().shares())
        assert trace["shares"].shape == (len(trace["shares_at"]), len(trace["share_names"]))


def test_the_trace_has_what_was_recorded(tmp_path, cache):
    result = run(tiny_cell("dab"), tiny_task(), tmp_path, cache=cache)
    with np.load(tmp_path / result.card.run_id / "trace.npz") as trace:
        assert trace["buffer_classes"].sum(axis=1).tolist() == trace["fill"].tolist()
        assert trace["buffer_images"].shape[:2] == (record.SHOTS, record.IMAGES)


@pytest.mark.parametrize("batches", [1, 5, 149, 150, 400, 5000])
def test_there_are_about_150_looks_and_six_shots(batches):
    class Long:
        samples = 64 * batches

        def __len__(self) -> int:
            return batches

    recorder = Recorder(Long())
    assert min(batches, 100) <= len(recorder.looks) <= 200
    assert len(recorder.shots) == min(batches, record.SHOTS)
    assert all(0 <= number < batches for number in recorder.looks | recorder.shots)


# Ages of a buffer


def test_ages_count_what_came_in_since_and_survive_a_resume():
    def fresh() -> Buffer:
        policy = PBRSPolicy(4, 3, torch.Generator().manual_seed(1))
        return Buffer(policy, ImageStorage(4))

    buffer, number, came = fresh(), 0, {}
    for round_ in range(12):
        images = torch.arange(round_ * 5, round_ * 5 + 5).view(5, 1, 1, 1) / 255
        placements = buffer.insert(images, [0, 0, 1, 2, round_ % 3])
        for placement in placements:
            if placement is not None:
                came[placement.slot] = number
                number += 1
        assert buffer.ages == [number - 1 - came[slot] for slot in range(len(buffer))]
        if round_ == 6:
            state, buffer = buffer.state_dict(), fresh()
            buffer.load_state_dict(state)
            assert torch.equal(buffer.state_dict()["ages"], state["ages"])


@pytest.mark.parametrize("ages", [[0], [0, 1, 2], [0, -1]])
def test_a_state_without_an_age_for_each_image_is_refused(ages):
    def fresh() -> Buffer:
        return Buffer(BalancedPolicy(4, 3), ImageStorage(4))

    buffer = fresh()
    buffer.insert(torch.rand(2, 1, 2, 2), [0, 1])
    reason = r"an age of its own for each image|ages must be a tensor"
    with pytest.raises(ValueError, match=reason):
        fresh().load_state_dict({**buffer.state_dict(), "ages": torch.tensor(ages)})


# Runs under way


def test_a_run_under_way_says_how_far_it_is(tmp_path, cache):
    cell, task = tiny_cell("tent"), tiny_task()
    batches = 0

    def stop(running, seen, samples):
        nonlocal batches
        if running.method == "tent":
            batches += 1
            if batches == 7:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        run(cell, task, tmp_path, cache=cache, watch=stop)
    (progress,) = progresses(tmp_path)
    name = progress.card.run_id
    stream = stream_of(cell, task, cache)
    assert progress.seen == stream.position(7) == 102
    assert (progress.samples, progress.window) == (210, 16)
    result = run(cell, task, tmp_path, cache=cache)
    assert name == result.card.run_id
    assert not list(progresses(tmp_path))
    assert not list(tmp_path.glob(f"*/{PROGRESS}"))
    with np.load(tmp_path / name / "trace.npz") as trace:
        wrong = trace["predictions"] != stream.labels
    assert progress.windows == tuple(errors_by_window(wrong[:102], 16))


def test_it_says_so_now_and_then_only(tmp_path, cache):
    cell, task = tiny_cell("tent"), tiny_task()
    stream = stream_of(cell, task, cache)
    progress = ProgressFile(tmp_path / "run", identity_card(cell, task, stream, 1.0), stream)
    evaluation = Evaluation(cell, task, stream)
    file = tmp_path / "run" / PROGRESS
    evaluation.done = 1
    progress.tell(evaluation)
    evaluation.done = 2
    progress.tell(evaluation)
    assert json.loads(file.read_text())["seen"] == 16
    evaluation.done = 3
    progress.tell(evaluation, now=True)
    assert json.loads(file.read_text())["seen"] == 48
    progress.end()
    progress.end()
    assert not file.exists()


def test_a_damaged_progress_is_named(tmp_path):
    files.write(tmp_path / "run" / PROGRESS, "{}")
    problems: list[Problem] = []
    assert not list(progresses(tmp_path, problems))
    (problem,) = problems
    assert str(problem).startswith(f"{tmp_path / 'run'}: skipped: progress.json is damaged (")
    files.write(tmp_path / "run" / "result.json", "{}")
    problems.clear()
    assert not list(progresses(tmp_path, problems))
    assert not problems  # it has finished, whatever was left behind
