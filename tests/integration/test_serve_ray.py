"""`dab serve --engine ray`: two replicas, one of which is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from dab.cli import main
from dab.utils import files
from tests.support.serving import Client, Process, alone, counts, pictures, png

pytestmark = pytest.mark.slow

TOKEN = "correct horse battery"
# The chance that none of them belongs to a replica, or moves to a new one, is 1 in 65,536.
STREAMS = {f"cam-{number}": pictures(40, seed=number) for number in range(16)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    for package in ("ray", "fastapi", "mmh3"):
        pytest.importorskip(package, reason="pip install 'dab-tta[serve-ray]'")
    (tmp_path / "token").write_text(TOKEN)
    options = ["--engine=ray", "--replicas=2", f"--token-file={tmp_path}/token", "--save-every=1"]
    process = Process(tmp_path / "states", *options, "--timeout=600", "--max-body=1")
    yield process
    if process.running.poll() is None:
        process.end(signal.SIGTERM)


def owner(folder: Path, stream: str) -> str | None:
    """The replica that has a stream in memory; None while it moves."""
    try:
        return (folder / "claims" / "streams" / stream).read_text()
    except FileNotFoundError:
        return None


def process_of(folder: Path, replica: str) -> int:
    lease = json.loads((folder / "claims" / "replicas" / replica / "claim.json").read_text())
    found: int = lease["pid"]
    return found


def predict(client: Client, stream: str, picture: Any) -> dict[str, Any]:
    """An answer; while a replica is dying, requests may fail, and the next one succeeds."""
    while True:
        status, answer = client.predict(stream, picture)
        if status == 200:
            found: dict[str, Any] = answer
            return found
        assert status == 503, answer
        assert "try again" in answer["error"]
        assert client.answered.headers["retry-after"] == "1"


def test_the_streams_of_a_killed_replica_resume_on_another(server, tmp_path):
    folder = tmp_path / "states"
    client = Client(server.port, TOKEN)

    # Streams are spread, and stick.
    owners: dict[str, Any] = {}
    for stream, pixels in STREAMS.items():
        for number, picture in enumerate(pixels[:30]):
            status, answer = client.predict(stream, picture)
            assert (status, answer["health"]["images"]) == (200, number + 1)
            assert owners.setdefault(stream, owner(folder, stream)) == owner(folder, stream)
    victim, survivor = dict.fromkeys(owners.values())
    check_that_it_is_guarded(server, client)
    check_reports(client, owners)

    # While a stream of the other replica is fed, one replica is killed.
    lost = [stream for stream, replica in owners.items() if replica == victim]
    other = next(stream for stream, replica in owners.items() if replica == survivor)
    done, answered = threading.Event(), []

    def feed() -> None:
        with Client(server.port, TOKEN) as own:
            while not done.is_set():
                answered.append(own.predict(other, STREAMS[other][len(answered) % 40]))

    feeding = threading.Thread(target=feed)
    feeding.start()
    killed = process_of(folder, victim)
    os.kill(killed, signal.SIGKILL)
    while files.is_alive(killed):
        time.sleep(0.01)
    resumed = 0
    for stream in lost:
        adapter, saved = alone(), folder / f"{stream}.pt"
        if saved.exists():
            shutil.copy(saved, tmp_path / "copy.pt")
            adapter.load(tmp_path / "copy.pt")
            resumed += 1
        before = adapter.totals.samples
        for number, picture in enumerate(STREAMS[stream][before : before + 5]):
            answer = predict(client, stream, picture)
            image = torch.from_numpy(picture).permute(2, 0, 1)[None]
            expected = adapter(image)[0].double().softmax(0).sort(descending=True).values[:5]
            assert answer["health"]["images"] == before + number + 1
            assert answer["probabilities"] == pytest.approx(expected.tolist(), abs=1e-4)
    assert resumed > 0

    # A new replica takes over some streams of the other one, which has saved them for that.
    while not is_new(folder, owners):
        seen = {s: predict(client, s, pictures(1)[0])["health"]["images"] for s in STREAMS}
        again = {s: predict(client, s, pictures(1)[0])["health"]["images"] for s in STREAMS}
        assert all(again[s] == seen[s] + 1 for s in STREAMS if s != other)
    done.set()
    feeding.join()
    assert [status for status, _ in answered] == [200] * len(answered)
    images = [answer["health"]["images"] for _, answer in answered]
    assert sorted(set(images)) == images  # nothing that it has learned was lost

    # An orderly end saves everything.
    last = {s: predict(client, s, pictures(1)[0])["health"]["images"] for s in STREAMS}
    client.close()
    said = server.end(signal.SIGTERM)
    assert counts(folder) == last, said
    assert not list((folder / "claims" / "streams").iterdir())


def is_new(folder: Path, owners: dict[str, str]) -> bool:
    """Whether a replica that did not exist before has a stream."""
    return any(owner(folder, stream) not in {None, *owners.values()} for stream in owners)


def check_that_it_is_guarded(server: Process, client: Client) -> None:
    picture = png(pictures(1)[0])
    with Client(server.port) as stranger:
        assert stranger.get("/streams")[0] == 401
        assert stranger.get("/")[0] == 200
    path, kind = "/streams/cam-0/predict", {"content-type": "image/png"}
    assert client.request("POST", path, bytes((1 << 20) + 1), kind)[0] == 413
    assert client.request("POST", path, picture, {})[0] == 415
    assert client.request("POST", path, b"no image", kind)[0] == 400
    assert client.request("POST", path, picture, {**kind, "host": "evil.example"})[0] == 400
    processes = [psutil.Process(server.running.pid)]
    processes += processes[0].children(recursive=True)
    listening = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert "127.0.0.1" in listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def check_reports(client: Client, owners: dict[str, str]) -> None:
    _, found = client.get("/streams")
    assert found["total"] == len(STREAMS)
    assert client.get("/streams/cam-3")[1]["totals"]["samples"] == 30
    assert client.get("/streams/nobody")[0] == 404
    assert client.get("/v2/health/ready")[0] == 200
    metrics = client.get("/metrics")[1]
    for stream, replica in owners.items():
        label = f'replica="{replica}",stream="{stream}"'
        assert f"dab_stream_images_total{{{label}}} 30.0" in metrics
    client.predict("gone", pictures(1)[0])
    assert client.request("DELETE", "/streams/gone")[0] == 200
    assert client.get("/streams/gone")[0] == 404


def test_what_is_wrong_is_said_before_a_cluster_starts(capsys):
    model = ["serve", "--model=tests.support.serving:load", "--port=0"]
    cases = {
        "--replicas needs --engine ray": ["--replicas=2"],
        "object stores have no locks": ["--engine=ray", "--folder=memory://bucket/states"],
        "no Ray cluster answers at 127.0.0.1:1": ["--engine=ray", "--address=127.0.0.1:1"],
        "unknown": ["--engine=ray", "--method=no-such-method"],
    }
    for said, options in cases.items():
        assert main([*model, *options]) == 2
        assert said in capsys.readouterr().err
