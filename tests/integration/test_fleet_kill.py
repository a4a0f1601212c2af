"""A fleet's process is killed at any moment: its files are complete, and streams resume."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

import dab
from dab.testing import net, same
from tests.support.fleets import OPTIONS, pool

STREAMS = list("abcd")


def make(folder: Path) -> dab.Fleet:
    return dab.Fleet(
        net("layernorm"), "dab", folder=folder, limit=3, **{**OPTIONS["dab"], "output": "markov"}
    )


def step(fleet: dab.Fleet, number: int) -> None:
    """One call, which puts a stream aside, and a save."""
    streams = [STREAMS[(number + place) % 4] for place in (0, 0, 1)]
    fleet(pool(number, 3, torch.float32), streams)
    fleet.save()


def calls(fleet: dab.Fleet) -> dict[str, int]:
    return {one: fleet.stream(one).totals.calls for one in (*fleet.streams, *fleet.aside)}


@pytest.mark.slow
def test_a_killed_fleet_resumes_from_its_last_save(tmp_path):
    numbers = random.Random(0)
    for trial in range(6):
        folder = tmp_path / str(trial)
        reader, writer = os.pipe()
        child = os.fork()  # not a new interpreter, which would import torch for seconds
        if child == 0:
            try:
                fleet = make(folder)
                for number in range(10_000):
                    step(fleet, number)
                    os.write(writer, b".")
            finally:
                os._exit(1)
        os.close(writer)
        done = len(os.read(reader, 1))
        time.sleep(numbers.uniform(0, 0.2))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        while content := os.read(reader, 4096):
            done += len(content)
        os.close(reader)

        # As many steps as were saved, or one more, of which some streams may have been written.
        fewest, most = make(tmp_path / f"{trial} fewest"), make(tmp_path / f"{trial} most")
        for number in range(done + 1):
            if number < done:
                step(fewest, number)
            step(most, number)
        resumed = make(folder)
        assert resumed.streams == []
        found, low, high = calls(resumed), calls(fewest), calls(most)
        assert low.keys() <= found.keys() <= high.keys()
        for one, number in found.items():
            twin = fewest if low.get(one) == number else most
            assert same(resumed.stream(one).state_dict(), twin.stream(one).state_dict())
        step(resumed, done)
        assert not list(folder.glob("*.part"))
