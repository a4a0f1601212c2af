"""Attacks on a folder of results: what is not sound is named and left out, the rest stands."""

from __future__ import annotations

import errno
import json
import logging
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dab.benchmark import Result, results
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import FILE, LARGEST, Problem, _checksum
from dab.benchmark.running.checkpoint import CHECKPOINT, load_checkpoint, save_checkpoint
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.run import Interrupted, identity_card
from tests.support.benchmark_task import SOURCE_ERROR, assert_same_runs, run, tiny_cell, tiny_task


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of tent and one of the source model."""
    folder = tmp_path_factory.mktemp("made")
    for method in ("source", "tent"):
        run(tiny_cell(method), tiny_task(), folder / "out", cache=folder / "cache")
    return folder / "out"


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "out"))


def file_of(out: Path, method: str = "tent") -> Path:
    for file in out.glob(f"*/{FILE}"):
        if json.loads(file.read_text())["card"]["method"] == method:
            return file
    raise AssertionError(method)


def left_out(out: Path) -> str:
    """Why the run of tent is left out, after the source's was read."""
    problems: list[Problem] = []
    (source,) = results(out, problems)
    assert source.card.method == "source"
    (problem,) = problems
    assert str(problem) == f"{problem.run}: {problem.reason}"
    return str(problem)


def signed(content: dict[str, Any]) -> dict[str, Any]:
    """With the checksum that belongs to it."""
    content = {name: value for name, value in content.items() if name != "checksum"}
    return {**content, "checksum": _checksum(content)}


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


CONTENTS = {
    "empty": b"",
    "text": b"this is not a result",
    "binary": bytes(range(256)),
    "null": b"null",
    "list": b"[]",
    "no card": b"{}",
    "cut": b'{"card": {"method": "tent"',
    "nested": nested(1000),
    "nested deeply": nested(2_000_000),
    "nested in a card": b'{"card": ' + nested(500) + b"}",
    "not a number": b'{"card": NaN}',
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_is_not_a_result_is_left_out(content, out):
    file = file_of(out)
    file.write_bytes(content)
    assert left_out(out).startswith(f"{file.parent}: skipped: result.json is damaged (")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def device(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def huge(file: Path) -> None:
    os.truncate(file, LARGEST + 1)


def loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


def loop_of_folders(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.symlink_to(file.parent)


def nowhere(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.with_name("gone"))


@pytest.mark.parametrize("attack", [fifo, folder, device, huge, loop, loop_of_folders, nowhere])
def test_odd_files_are_harmless(attack, out):
    file = file_of(out)
    attack(file)
    assert left_out(out).startswith(f"{file.parent}: ")


def edit(file: Path, change: Callable[[dict[str, Any]], None], *, sign: bool = False) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(signed(content) if sign else content))


def test_an_edited_number_is_left_out(out):
    edit(file_of(out), lambda content: content.update(error=1.0))
    assert "skipped: result.json does not match its checksum; rerun or delete" in left_out(out)


def test_an_edited_card_is_left_out(out):
    edit(file_of(out), lambda content: content["card"]["options"].update(lr=0.5), sign=True)
    assert "result.json has the card of run " in left_out(out)


def test_a_result_in_the_folder_of_another_run_is_left_out(out):
    shutil.copy(file_of(out, "source"), file_of(out))
    assert "result.json has the card of run " in left_out(out)


def test_a_result_of_an_older_version_is_named_as_such(out):
    def age(content: dict[str, Any]) -> None:
        del content["run_id"], content["checksum"], content["card"]["format"]

    file = file_of(out)
    edit(file, age)
    expected = f"{file.parent}: skipped: written by an older version of dab; rerun or delete it"
    assert left_out(out) == expected
    edit(file, lambda content: content["card"].update(format=99))
    assert "written by a newer version of dab" in left_out(out)


def test_every_single_flipped_bit_of_a_result_is_noticed(out):
    file = file_of(out)
    (whole,) = (result for result in results(out) if result.card.method == "tent")
    content = file.read_bytes()
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            found = Result.read(file.parent)
        except ValueError as error:
            assert str(file) in str(error)  # noqa: PT017
        else:
            assert found == whole  # white space


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values in JSON."""
    yield path
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))


def put(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for name in path[:-1]:
        content = content[name]
    content[path[-1]] = value


OTHERS = [None, True, -1, 10**400, 0.5, "text", [], {}, [[]], {"a": 1}]


def test_no_wrong_type_anywhere_gets_through_even_if_signed(out):
    """Every value in a result is replaced by others: refused by name, or of the right type."""
    file = file_of(out)
    content = json.loads(file.read_text())
    tried = accepted = 0
    for path in [path for path in leaves(content) if path and path[0] != "checksum"]:
        for value in OTHERS:
            copy = json.loads(json.dumps(content))
            put(copy, path, value)
            if json.dumps(copy) == json.dumps(content):
                continue
            file.write_text(json.dumps(signed(copy)))
            tried += 1
            try:
                found = Result.read(file.parent)
            except ValueError as error:
                assert str(file) in str(error)  # noqa: PT017
                continue
            accepted += 1
            assert type(found) is Result
            assert type(found.error) is float
            assert path[0] != "run_id"
            # What is not part of the id may be another value of its type.
            assert path[0] != "card" or path[1] in ("source_error", "published_as", "versions")
    assert tried > 500
    assert accepted < tried / 10


def test_a_wrong_field_of_a_card_is_named(out):
    content = json.loads(file_of(out).read_text())["card"]
    for path, value, reason in [
        (("seed",), "0", "seed must be of type int, got '0'"),
        (("data", "samples"), 1.5, "data.samples must be of type int, got 1.5"),
        (("data", "domains"), [], "data.domains must not be empty"),
        (("data", "domains"), ["fog", 3], r"data.domains\[1\] must be of type str, got 3"),
        (("model",), None, "model must be an object, got None"),
        (("setting",), "backwards", "unknown setting 'backwards'"),
        (("compute", "threads"), True, "compute.threads must be of type int, got True"),
        (("source_error",), "low", "source_error must be a finite number, got 'low'"),
        (("engine",), "steam", "unknown field engine"),
        (("shard",), {"number": 0}, "missing field shard.pieces"),
    ]:
        copy = json.loads(json.dumps(content))
        put(copy, path, value)
        with pytest.raises(ValueError, match=reason):
            RunCard.from_json(copy)
    del content["batch_size"]
    with pytest.raises(ValueError, match="missing field batch_size"):
        RunCard.from_json(content)


def test_without_a_list_problems_are_logged(out, caplog):
    file = file_of(out)
    file.write_text("{")
    with caplog.at_level(logging.WARNING, "dab"):
        assert len(list(results(out))) == 1
    assert str(file.parent) in caplog.text


def test_a_result_that_is_written_again_is_read_again(out):
    file = file_of(out)
    assert len(list(results(out))) == 2
    content = file.read_text()
    file.write_text("{")
    assert "damaged" in left_out(out)
    file.write_text(content)
    assert len(list(results(out))) == 2


# Checkpoints


def stop(cell: Any, seen: int, samples: int) -> None:
    if cell.method == "tent" and seen > 90:
        os.kill(os.getpid(), 15)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the source model, and one of tent that was stopped on its way."""
    out = tmp_path_factory.mktemp("stopped")
    run(tiny_cell("source"), tiny_task(), out, cache=out / "cache")
    with pytest.raises(Interrupted):
        run(tiny_cell("tent"), tiny_task(), out, cache=out / "cache", watch=stop)
    shutil.rmtree(out / "cache")
    return out


def card_of(cell: Any, tmp_path: Path) -> RunCard:
    task = tiny_task()
    return identity_card(cell, task, stream_of(cell, task, tmp_path / "cache"), SOURCE_ERROR)


def test_a_checkpoint_of_other_options_is_refused(stopped, made, tmp_path, caplog):
    """As D5: that of another learning rate in this run's folder."""
    out, cell = Path(shutil.copytree(stopped, tmp_path / "out")), tiny_cell("tent")
    (file,) = out.glob(f"*/{CHECKPOINT}")
    other = replace(cell, options={"lr": 0.5})
    with pytest.raises(Interrupted):
        run(other, tiny_task(), out, cache=tmp_path / "cache", watch=stop)
    (foreign,) = (found for found in out.glob(f"*/{CHECKPOINT}") if found != file)
    shutil.copy(foreign, file)
    shutil.rmtree(foreign.parent)
    run(cell, tiny_task(), out, cache=tmp_path / "cache")
    assert f"starts over: it belongs to run {foreign.parent.name}" in caplog.text
    assert_same_runs(out, made)


def test_a_checkpoint_of_an_older_version_is_named(stopped, made, tmp_path, caplog):
    out = Path(shutil.copytree(stopped, tmp_path / "out"))
    (file,) = out.glob(f"*/{CHECKPOINT}")
    torch.save({"adapter": {}, "done": 3}, file)
    run(tiny_cell("tent"), tiny_task(), out, cache=tmp_path / "cache")
    assert "starts over: written by an older version of dab" in caplog.text
    assert_same_runs(out, made)


NAN = float("nan")
TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "done text": lambda state: state.update(done="3"),
    "done true": lambda state: state.update(done=True),
    "done float": lambda state: state.update(done=3.0),
    "done too far": lambda state: state.update(done=10**9),
    "done negative": lambda state: state.update(done=-1),
    "seconds": lambda state: state.update(seconds=NAN),
    "seconds none": lambda state: state.update(seconds=None),
    "peak": lambda state: state.update(peak_memory="much"),
    "predictions short": lambda state: state.update(predictions=state["predictions"][:-1]),
    "predictions long": lambda state: state.update(predictions=state["predictions"].long()),
    "predictions none": lambda state: state.update(predictions=None),
    "predictions sparse": lambda state: state.update(predictions=state["predictions"].to_sparse()),
    "steps": lambda state: state.update(steps=state["steps"].float()),
    "steps list": lambda state: state.update(steps=state["steps"].tolist()),
    "recorder": lambda state: state.update(recorder={"other": torch.zeros(3)}),
    "recorder none": lambda state: state.update(recorder=None),
    "recorder number": lambda state: state.update(recorder={"look_at": 3}),
    "adapter": lambda state: state.update(adapter={}),
    "adapter none": lambda state: state.update(adapter=None),
    "an attribute more": lambda state: state.update(resets=True),
    "a field less": lambda state: state.pop("seconds"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_checkpoint_with_a_wrong_field_is_refused_even_if_signed(
    name, stopped, made, tmp_path, caplog
):
    out, cell = Path(shutil.copytree(stopped, tmp_path / "out")), tiny_cell("tent")
    card = card_of(cell, tmp_path)
    state = load_checkpoint(out / card.run_id, card)
    assert state is not None
    TAMPERED[name](state)
    save_checkpoint(out / card.run_id, card, state)
    run(cell, tiny_task(), out, cache=tmp_path / "cache")
    assert "is not usable, so the run starts over: " in caplog.text
    assert_same_runs(out, made)


def test_a_pipe_in_the_place_of_a_checkpoint_does_not_block(stopped, made, tmp_path):
    out = Path(shutil.copytree(stopped, tmp_path / "out"))
    (file,) = out.glob(f"*/{CHECKPOINT}")
    fifo(file)
    run(tiny_cell("tent"), tiny_task(), out, cache=tmp_path / "cache")
    assert_same_runs(out, made)


# A full disk


def test_a_full_disk_says_so_and_the_run_resumes(stopped, made, tmp_path):
    """A limit on the size of files fails like a full disk, but with another number."""
    out, cell = Path(shutil.copytree(stopped, tmp_path / "out")), tiny_cell("tent")
    folder = out / card_of(cell, tmp_path).run_id
    arguments = {"cache": tmp_path / "cache", "checkpoint_every": 2}
    stream = stream_of(cell, tiny_task(), tmp_path / "cache")
    for _ in stream:
        pass  # all images are in the cache, which is not to fail
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{folder / CHECKPOINT}'") as caught:
            run(cell, tiny_task(), out, **arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    seen: list[int] = []
    run(cell, tiny_task(), out, watch=lambda cell, at, samples: seen.append(at), **arguments)
    assert 0 < len(seen) < 15  # from the last checkpoint that could be written
    assert_same_runs(out, made)
