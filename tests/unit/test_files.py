"""Atomic files: after kills, between concurrent writers and on a full disk."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dab.utils import files

FORK = multiprocessing.get_context("fork")


def write_half_and_wait(file: Path) -> None:
    with files.aside(file) as unfinished:
        unfinished.write_text("half")
        time.sleep(60)


@pytest.fixture
def writer(tmp_path):
    """A process that has written half of `file`."""
    process = FORK.Process(target=write_half_and_wait, args=(tmp_path / "file",))
    process.start()
    while not any(path.read_text() == "half" for path in tmp_path.iterdir()):
        time.sleep(0.01)
    yield process
    process.kill()
    process.join()


def test_the_next_writer_takes_over_from_one_that_is_being_killed(tmp_path, writer):
    os.kill(writer.pid, signal.SIGKILL)  # and it is not waited for
    files.write(tmp_path / "file", "complete")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "complete"


def test_only_files_of_dead_processes_are_removed(tmp_path, writer):
    (begun,) = tmp_path.iterdir()
    files.remove_unfinished(tmp_path)
    assert begun.read_text() == "half"
    writer.kill()
    writer.join()
    files.remove_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_machines_are_left_alone(tmp_path):
    other = tmp_path / f"file.{socket.gethostname()}x.part"
    other.touch()
    (tmp_path / "file.elsewhere.part").touch()
    files.remove_unfinished(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_concurrent_writers_of_one_file_never_mix(tmp_path):
    file = tmp_path / "file"

    def write(letter: str) -> None:
        for _ in range(20):
            files.write(file, letter * 100_000)
            assert len(set(file.read_text())) == 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, "abcdefgh"))
    assert len(file.read_text()) == 100_000
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_system_without_locks_works_too(tmp_path, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    files.write(tmp_path / "file", "complete")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    left = tmp_path / f"file.{socket.gethostname()}.part"
    left.touch()
    files.remove_unfinished(tmp_path)
    assert left.exists()  # its process may be alive


def save_tensor(file: Path) -> None:
    with files.aside(file) as unfinished:
        torch.save(torch.zeros(100_000), unfinished)


def write_bytes(file: Path) -> None:
    files.write(file, bytes(400_000))


@pytest.mark.parametrize("write", [save_tensor, write_bytes])
def test_a_full_disk_names_the_file_and_the_reason(tmp_path, write):
    file = tmp_path / "file"
    files.write(file, "old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{file}'"):
            write(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "old"
