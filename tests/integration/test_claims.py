"""Several processes in one folder of results: each run is made once, whoever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dab.benchmark import Job, TaskRecipe, results
from dab.benchmark.engines import Resources, dispatch
from dab.benchmark.engines.inline import Inline
from dab.benchmark.engines.view import View
from dab.benchmark.running import claims
from dab.benchmark.running.claims import CLAIM, Owner, holder, try_claim
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.run import ClaimedError, identity_card
from dab.utils.files import location
from dab.utils.typed_json import to_json
from tests.support.benchmark_task import run, tiny_cell, tiny_task

DEAD = 2**22 + 1  # no process has a number like this


def write(folder: Path, **changes: object) -> Owner:
    """Somebody's claim."""
    owner = Owner("a1b2", claims._host(), os.getpid(), time.time() + 60)
    owner = replace(owner, **changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CLAIM).write_text(json.dumps(to_json(owner)))
    return owner


def test_a_claim_is_exclusive_until_it_is_released(tmp_path):
    folder = tmp_path / "run"
    claim = try_claim(folder)
    assert claim is not None
    assert holder(folder).pid == os.getpid()
    assert try_claim(folder) is None
    claim.release()
    assert list(folder.iterdir()) == []
    with try_claim(folder):
        assert try_claim(folder) is None
    assert list(folder.iterdir()) == []


VOID = {
    "expired": {"expires": 1.0},
    "expired elsewhere": {"host": "elsewhere", "expires": 1.0},
    "of a dead process": {"pid": DEAD},
}


@pytest.mark.parametrize("changes", VOID.values(), ids=VOID)
def test_a_void_claim_is_taken_over(changes, tmp_path):
    write(tmp_path, **changes)
    with try_claim(tmp_path):
        assert holder(tmp_path).id != "a1b2"
        assert {file.name for file in tmp_path.iterdir()} == {CLAIM}
    assert list(tmp_path.iterdir()) == []


def test_a_claim_of_another_machine_holds_until_it_expires(tmp_path):
    write(tmp_path, host="elsewhere", pid=DEAD)
    assert try_claim(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"\xff", b"[" * 4000, b"0" * 9999])
def test_an_unreadable_claim_is_void(content, tmp_path):
    (tmp_path / CLAIM).write_bytes(content)
    with try_claim(tmp_path) as claim:
        assert claim is not None


def test_a_pipe_in_the_place_of_a_claim_does_not_block(tmp_path):
    os.mkfifo(tmp_path / CLAIM)
    with try_claim(tmp_path) as claim:
        assert claim is not None


@pytest.mark.parametrize("void", [False, True])
def test_of_many_who_want_a_run_at_most_one_gets_it(void, tmp_path):
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        if void:
            write(folder, pid=DEAD)
        start, found = threading.Barrier(8), []

        def want(folder=folder, start=start, found=found) -> None:
            start.wait()
            if (claim := try_claim(folder)) is not None:
                found.append(claim)

        threads = [threading.Thread(target=want) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 1
        found[0].release()
        assert list(folder.iterdir()) == []


def test_an_owner_renews_its_claim(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "LEASE", 0.4)
    with try_claim(tmp_path):
        first = holder(tmp_path)
        time.sleep(1)
        assert holder(tmp_path).id == first.id
        assert holder(tmp_path).expires > first.expires
        assert try_claim(tmp_path) is None


def test_a_claim_that_was_taken_over_is_left_to_its_new_owner(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(claims, "LEASE", 0.4)
    with try_claim(tmp_path):
        write(tmp_path)
        time.sleep(0.5)
    assert holder(tmp_path).id == "a1b2"
    assert "was taken over" in caplog.text


def test_an_owner_renews_only_what_is_still_its_own(tmp_path, monkeypatch):
    """Looking whose the claim is and renewing it is one step, even for an owner that is slow."""
    monkeypatch.setattr(claims, "LEASE", 0.2)
    with try_claim(tmp_path) as claim:
        with claims._locked(tmp_path):
            before = holder(tmp_path)
            time.sleep(0.3)  # the owner wants to renew it several times over
            assert holder(tmp_path) == before
            other = write(tmp_path)
        claim._renewing.join()  # it has noticed
    assert holder(tmp_path) == other


def test_a_claim_whose_folder_is_gone_is_released(tmp_path):
    folder = tmp_path / "run"
    with try_claim(folder):
        shutil.rmtree(folder)
    assert not folder.exists()


def test_a_claim_in_a_store(monkeypatch):
    monkeypatch.setattr(claims, "SETTLE", 0.01)
    folder = location(f"memory://{os.urandom(8).hex()}/run")
    with try_claim(folder):
        assert try_claim(folder) is None
    with try_claim(folder) as claim:
        assert claim is not None


def test_a_run_says_who_executes_it_and_a_grid_waits(tmp_path):
    cell, task = tiny_cell("source"), tiny_task()
    card = identity_card(cell, task, stream_of(cell, task, tmp_path / "cache"), None)
    folder = tmp_path / card.run_id
    owner = write(folder, host="elsewhere x", expires=time.time() + 3)
    with pytest.raises(ClaimedError, match=rf"process {os.getpid()} on elsewhere is executing "):
        run(cell, task, tmp_path, cache=tmp_path / "cache")
    job = Job(cell, TaskRecipe("tiny"), tmp_path, tmp_path / "cache")
    (result,) = dispatch([job], Inline(Resources()), View())
    assert result.card == card
    assert time.time() >= owner.expires
    assert not (folder / CLAIM).exists()


# Real processes

COUNTING = """
import os, time
import dab
from dab.methods import TENT

for name in ("first", "second", "third"):
    @dab.register(name)
    class Counting(TENT):
        def adapt(self, images, logits):
            with open(os.environ["DAB_TEST_CALLS"], "a") as file:
                file.write(f"{self.name} {os.getpid()}\\n")
            time.sleep(0.1)
            return super().adapt(images, logits)
    Counting.__qualname__ = name
"""


def start(tmp_path: Path, *options: str) -> subprocess.Popen:
    """A grid of three methods on six batches in a folder, in a process of its own."""
    (tmp_path / "counting.py").write_text(COUNTING.replace("Counting", "Counting"))
    methods = [word for name in ("first", "second", "third") for word in ("--method", name)]
    command = [sys.executable, "-m", "dab", "bench", *methods, "--samples", "48"]
    command += ["--batch-size", "16", "--corruptions", "fog", "contrast", "--checkpoint-every", "1"]
    command += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), *options]
    command += ["--import", str(tmp_path / "counting.py")]
    environment = {**os.environ, "DAB_TEST_CALLS": str(tmp_path / "calls")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def calls(tmp_path: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in (tmp_path / "calls").read_text().splitlines())


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_two_commands_in_one_folder_make_each_run_once(jobs, tmp_path):
    both = [start(tmp_path, "--jobs", jobs) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert calls(tmp_path) == {"first": 6, "second": 6, "third": 6}
    found = list(results(tmp_path / "out"))
    assert {result.card.method for result in found} == {"source", "first", "second", "third"}
    for output in outputs:
        assert all(f"{name}, glyphs" in output for name in ("first", "second", "third"))
    left = {file.name for file in (tmp_path / "out").glob("*/*")}
    assert left == {"result.json", "trace.npz"}


def test_a_killed_command_loses_its_run_to_the_other(tmp_path):
    first = start(tmp_path, "--jobs", "1")
    until = time.monotonic() + 120
    while not (tmp_path / "calls").exists() and time.monotonic() < until:
        time.sleep(0.05)
    other = start(tmp_path, "--jobs", "1")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    output, _ = other.communicate(timeout=300)
    assert other.returncode == 0, output
    assert {result.card.method for result in results(tmp_path / "out")} > {"first", "third"}
    assert not list((tmp_path / "out").glob(f"*/{CLAIM}"))
    # The batch that was interrupted, and at most one more, were repeated.
    assert sum(calls(tmp_path).values()) <= 18 + 2


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / f"{CLAIM}.a1b2").touch()
    with try_claim(tmp_path):
        assert {file.name for file in tmp_path.iterdir()} == {CLAIM}


def test_this_machine_has_a_name():
    assert socket.gethostname() in claims._host()


@pytest.mark.parametrize(
    "change", [{"pid": 10**30}, {"pid": -1}, {"pid": 0}, {"expires": 9e18}, {"expires": 0.0}]
)
def test_a_claim_that_nobody_can_hold_is_void(change):
    owner = claims.Owner("id", claims._host(), os.getpid(), time.time() + claims.LEASE)
    assert owner.is_alive
    assert not replace(owner, **change).is_alive
