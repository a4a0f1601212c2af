"""Settings of all tests."""

from __future__ import annotations

import os

# All of these before torch is imported. One thread per process: the tests run in parallel, where
# threads that spin only slow each other, and more threads change the last bits of results.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# If its pool of compiling processes is killed, torch 2.13 waits for it forever, because both sides
# hold the pipe open (github.com/pytorch/pytorch/pull/189290).
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# Some virtual machines list AMX among the features of their processor and do not let it be used:
# bfloat16 products then end the process with "illegal instruction".
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dab.benchmark.engines import job
from dab.registry import METHODS
from tests.support import benchmark_task

__all__ = ["benchmark_task"]  # registers the tiny task

# It registers methods that fail and kill, for processes of engines; here all tests would meet them.
collect_ignore = ["support/engine_task.py"]

# The same random inputs for everyone: what passed here must not fail elsewhere by chance; `make
# fuzz` looks for others. A busy machine causes no failures: no test is timed.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _forget_tasks() -> None:
    """A process makes a task once; tests put others in its place."""
    job._task.cache_clear()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A folder to be in, and methods that are forgotten again."""
    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with METHODS.scope():
        yield
