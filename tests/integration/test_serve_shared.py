"""Services that share a folder: a stream belongs to one at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

import dab
from dab.fleet import Fleet
from dab.serve.errors import HeldError, UnknownStreamError
from dab.serve.limits import Limits
from dab.serve.shared_folder import SharedFolder, shareable
from dab.serve.shared_service import SharedService
from tests.support.nets import net, stream

OPTIONS: dict[str, Any] = {"capacity": 8, "batch_size": 4, "admission": "running", "lr": 0.01}
IMAGES = stream((40,), 0)[0]


class Replica:
    """A service with its own copy of the model."""

    def __init__(self, folder: Path, *, in_memory: int | None = None) -> None:
        self.folder = SharedFolder(str(folder))
        self.fleet = Fleet(
            net("layernorm").eval(), "dab", folder=self.folder, limit=in_memory, **OPTIONS
        )
        limits = Limits(wait=0)
        self.service = SharedService(self.fleet, self.folder, limits=limits, save_every=1000)

    def predict(self, name: str, number: int) -> torch.Tensor:
        image = IMAGES[number, None]
        found = asyncio.run(self.service.predict(name, lambda: image))
        assert found.status.images == number + 1
        return found.logits

    def let_go(self, name: str) -> None:
        asyncio.run(self.service.let_go(name))

    def close(self) -> None:
        self.service.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    with ExitStack() as stack:
        one, other = (stack.enter_context(closing(Replica(tmp_path))) for _ in range(2))
        yield one, other


@pytest.fixture
def expected() -> list[torch.Tensor]:
    """The logits of an adapter that sees all images."""
    adapter = dab.create("dab", net("layernorm").eval(), **OPTIONS)
    return [adapter(image[None]) for image in IMAGES]


def pause(replica: Replica) -> None:
    """As if its machine slept: its lease expires."""
    lease = replica.folder._lease
    lease._closed.set()
    lease._renewing.join()
    lease._owner = dataclasses.replace(lease._owner, expires=0.0)
    file = replica.folder.folder / "claims" / "replicas" / replica.folder.id / "claim.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "expires": 0.0}))


def wake(replica: Replica) -> None:
    """Its lease is renewed, late."""
    assert replica.folder._lease._renew_once()
    assert replica.folder._lease.is_current


def test_a_stream_moves_with_all_it_has_learned(replicas, expected):
    one, other = replicas
    for number in range(30):
        one.predict("cam-1", number)
    assert one.fleet.stream("cam-1").totals.updates > 0
    with pytest.raises(HeldError, match=f"belongs to replica {one.folder.id}"):
        other.predict("cam-1", 30)
    one.let_go("cam-1")
    assert (one.service.statuses, one.service.saved) == ({}, {"cam-1"})
    for number in range(30, 40):
        assert torch.allclose(other.predict("cam-1", number), expected[number], atol=1e-5)
    with pytest.raises(HeldError):
        one.predict("cam-1", 30)


def test_of_a_batch_only_the_streams_of_others_are_refused(replicas):
    one, other = replicas
    one.predict("cam-1", 0)
    service = other.service

    async def both() -> list[Any]:
        asked = [service.predict(name, lambda: IMAGES[:1]) for name in ("cam-1", "cam-2")]
        return await asyncio.gather(*asked, return_exceptions=True)

    refused, answered = asyncio.run(both())
    assert isinstance(refused, HeldError)
    assert answered.status.images == 1


def test_what_is_put_aside_is_free(tmp_path):
    with closing(Replica(tmp_path, in_memory=1)) as one, closing(Replica(tmp_path)) as other:
        one.predict("cam-1", 0)
        one.predict("cam-2", 0)
        other.predict("cam-1", 1)
        with pytest.raises(HeldError):
            other.predict("cam-2", 1)


def test_only_the_owner_describes_and_forgets_a_stream(replicas):
    one, other = replicas
    one.predict("cam-1", 0)
    for ask in (other.service.details, other.service.forget):
        with pytest.raises(HeldError):
            asyncio.run(ask("cam-1"))
    assert asyncio.run(one.service.details("cam-1"))["totals"]["samples"] == 1
    asyncio.run(one.service.forget("cam-1"))
    other.predict("cam-1", 0)


@pytest.mark.parametrize("asked", ["details", "forget"])
def test_asking_for_an_unknown_stream_leaves_its_name_free(replicas, asked):
    one, other = replicas
    with pytest.raises(UnknownStreamError):
        asyncio.run(getattr(one.service, asked)("nobody"))
    other.predict("nobody", 0)


def test_the_streams_of_a_dead_process_are_free(tmp_path):
    code = (
        "import os, sys; from dab.serve.shared_folder import SharedFolder; "
        "SharedFolder(sys.argv[1]).take('cam-1'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 9
    assert (tmp_path / "claims" / "streams" / "cam-1").exists()
    with closing(Replica(tmp_path)) as one:
        one.predict("cam-1", 0)


@pytest.mark.parametrize("awake", [False, True])
@pytest.mark.parametrize("is_back", [False, True])
def test_a_replica_that_slept_does_not_overwrite_what_another_one_has_learned(
    replicas, expected, is_back, awake
):
    one, other = replicas
    for number in range(25):
        one.predict("cam-1", number)
    one.fleet.save()
    one.predict("cam-1", 25)  # learned, and lost
    pause(one)
    for number in range(25, 35):
        assert torch.allclose(other.predict("cam-1", number), expected[number], atol=1e-5)
    if awake:
        wake(one)
    if is_back:  # the other one has put it aside: the first has an old copy of a free stream
        other.let_go("cam-1")
        assert torch.allclose(one.predict("cam-1", 35), expected[35], atol=1e-5)
        return
    with pytest.raises(HeldError):
        one.predict("cam-1", 26)
    one.fleet.save()
    assert "cam-1" not in one.fleet.streams
    other.let_go("cam-1")
    assert other.fleet.stream("cam-1").totals.samples == 35


@pytest.mark.parametrize("awake", [False, True])
def test_a_replica_that_slept_keeps_what_nobody_took(replicas, expected, awake):
    one, _ = replicas
    one.predict("cam-1", 0)
    pause(one)
    if awake:
        wake(one)
    assert torch.allclose(one.predict("cam-1", 1), expected[1], atol=1e-5)
    one.let_go("cam-1")
    assert (one.folder.folder / "cam-1.pt").exists()


def test_an_end_leaves_everything_saved_and_free(tmp_path):
    with closing(Replica(tmp_path)) as one:
        one.predict("cam-1", 0)
    assert (tmp_path / "cam-1.pt").exists()
    assert not any((tmp_path / "claims" / "streams").iterdir())
    assert not any((tmp_path / "claims" / "replicas").glob("*/claim.json"))


def test_object_stores_cannot_be_shared():
    with pytest.raises(ValueError, match="object stores have no locks"):
        shareable("memory://bucket/states")
