"""`dab serve`: real servers and real clients."""

from __future__ import annotations

import io
import json
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dab.cli import main
from dab.serve.limits import Limits
from dab.serve.logs import JsonLines
from tests.support.nets import CLASSES, SIZE, net
from tests.support.serving import (
    OPTIONS,
    Client,
    Process,
    Site,
    alone,
    counts,
    load,
    pictures,
    png,
)

PNG = {"content-type": "image/png"}


@pytest.fixture
def serve() -> Iterator[Callable[..., Site]]:
    """Starts servers, which end with the test."""
    with ExitStack() as stack:

        def start(**options: Any) -> Site:
            return stack.enter_context(closing(Site(**options)))

        yield start


@pytest.fixture
def site(serve: Callable[..., Site]) -> Site:
    return serve()


@pytest.fixture
def client(site: Site) -> Client:
    return site.client()


def one_by_one(pixels: Any) -> torch.Tensor:
    """The logits of an adapter that is fed the images one by one."""
    adapter = alone()
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    return torch.cat([adapter(image[None]) for image in images])


def test_an_image_is_answered_with_classes_and_health(client):
    pixels = pictures(12)
    for picture in pixels:
        status, answer = client.predict("cam-1", picture)
        assert status == 200
    expected = one_by_one(pixels)[-1].double().softmax(0)
    assert answer["stream"] == "cam-1"
    assert answer["classes"] == expected.argsort(descending=True)[:5].tolist()
    assert answer["labels"] == [str(number) for number in answer["classes"]]
    assert answer["probabilities"] == pytest.approx(sorted(expected.tolist())[:0:-1], abs=1e-4)
    assert answer["health"]["images"] == 12
    assert answer["health"]["state"] == "unguarded"


@pytest.mark.slow
def test_streams_that_share_batches_adapt_as_if_they_were_alone(site):
    streams = {f"cam-{n}": pictures(30, seed=n) for n in range(6)}

    def feed(name: str) -> list[list[float]]:
        client = site.client()
        rows = []
        for picture in streams[name]:
            status, answer = client.predict(name, picture)
            assert status == 200
            rows.append(answer["probabilities"])
        client.close()
        return rows

    with ThreadPoolExecutor(len(streams)) as pool:
        found = dict(zip(streams, pool.map(feed, streams), strict=True))
    for name, pixels in streams.items():
        expected = one_by_one(pixels).double().softmax(1).sort(descending=True).values[:, :5]
        assert np.allclose(found[name], expected, atol=1e-4)
    batches = site.service.metrics.registry.get_sample_value("dab_batch_requests_count")
    assert batches < 180  # some were shared
    updates = [status.updates for status in site.service.statuses.values()]
    assert min(updates) > 0


def test_the_client_of_triton_is_understood(site):
    triton = pytest.importorskip("tritonclient.http", reason="pip install tritonclient[http]")
    client = triton.InferenceServerClient(f"127.0.0.1:{site.port}")
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata("tiny")
    assert metadata["inputs"] == [
        {"name": "images", "datatype": "FP32", "shape": [-1, 3, SIZE, SIZE]}
    ]
    pixels = pictures(4)
    images = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    with torch.no_grad():
        expected = load()[0](torch.from_numpy(images).float() / 255)
    for stream, (kind, array) in enumerate(
        [("UINT8", images), ("FP32", images.astype(np.float32) / np.float32(255))]
    ):
        for binary in (True, False):
            tensor = triton.InferInput("images", list(array.shape), kind)
            tensor.set_data_from_numpy(array, binary_data=binary)
            answer = client.infer(
                "tiny", [tensor], request_id="7", parameters={"stream": f"{stream}-{binary}"}
            )
            assert np.allclose(answer.as_numpy("logits"), expected, atol=1e-4)
            sums = answer.as_numpy("probabilities").sum(1)
            assert np.allclose(sums, 1, atol=1e-5)
            response = answer.get_response()
            assert response["id"] == "7"
            assert response["parameters"]["images"] == 4
    wanted = triton.InferRequestedOutput("logits", binary_data=False)
    answer = client.infer("tiny", [tensor], outputs=[wanted])
    assert answer.get_response()["parameters"]["stream"] == "default"
    assert answer.as_numpy("logits").shape == (4, CLASSES)
    assert answer.as_numpy("probabilities") is None
    with pytest.raises(triton.InferenceServerException, match="the model is 'tiny'"):
        client.infer("other", [tensor])
    client.close()


def test_streams_are_listed_shown_and_forgotten(client):
    for picture in pictures(12):
        client.predict("cam-1", picture)
    client.predict("cam%202", pictures(1)[0])
    _, found = client.get("/streams")
    assert found["total"] == 2
    assert [one["stream"] for one in found["streams"]] == ["cam 2", "cam-1"]
    status, one = client.get("/streams/cam-1")
    assert status == 200
    assert one["totals"]["samples"] == 12
    held = one["buffer"]["classes"]
    assert sum(each["images"] for each in held) == one["buffer"]["images"] > 0
    assert all(each["label"] == str(each["class"]) for each in held)
    assert client.get("/streams/cam-9")[0] == 404
    assert client.request("DELETE", "/streams/cam-1") == (
        200,
        {"stream": "cam-1", "forgotten": True},
    )
    assert client.get("/streams/cam-1")[0] == 404
    assert client.request("DELETE", "/streams/cam-1")[0] == 404
    again = client.predict("cam-1", pictures(1)[0])[1]
    assert again["health"]["images"] == 1


# What is refused.


def test_bad_requests_say_why(client):
    picture = png(pictures(1)[0])
    cases = [
        ("POST", "/streams/cam-1/predict", b"hello", PNG, 400, "not a readable"),
        ("POST", "/streams/cam-1/predict", picture, {}, 415, "content type"),
        ("POST", "/streams/cam-1/predict", picture, PNG | {"content-encoding": "gzip"}, 415, ""),
        ("POST", "/streams/cam%0A1/predict", picture, PNG, 400, "name of a stream"),
        ("POST", f"/streams/{'A' * 60}/predict", picture, PNG, 400, "too long"),
        ("POST", "/streams/.%2E/predict", picture, PNG, 400, "name of a stream"),
        ("POST", "/v2/models/tiny/infer", b"{}", {}, 400, "inputs must be a list"),
        ("POST", "/v2/models/other/infer", b"{}", {}, 404, "the model is 'tiny'"),
        ("GET", "/v2/models/other", None, {}, 404, "the model is 'tiny'"),
        ("GET", "/nowhere", None, {}, 404, "Not Found"),
        ("PUT", "/streams", None, {}, 405, "Method Not Allowed"),
    ]
    for method, path, body, headers, code, said in cases:
        status, answer = client.request(method, path, body, headers)
        assert (status, said in answer["error"]) == (code, True), (path, answer)
    assert client.get("/streams")[1]["total"] == 0


def test_bodies_and_images_are_limited(serve):
    site = serve(limits=Limits(body=20_000, pixels=100, images=2))
    client = site.client()
    status, answer = client.request("POST", "/streams/a/predict", bytes(20_001), PNG)
    assert (status, "20,000 bytes" in answer["error"]) == (413, True)
    chunks = (bytes(10_000) for _ in range(3))  # without a declared length
    client = site.client()
    client.connection.request("POST", "/streams/a/predict", chunks, PNG, encode_chunked=True)
    assert client.connection.getresponse().status == 413
    client = site.client()
    status, answer = client.predict("a", np.zeros((11, 11, 3), np.uint8))
    assert (status, "100 pixels" in answer["error"]) == (413, True)
    tensor = {"name": "images", "datatype": "FP32", "shape": [3, 3, SIZE, SIZE], "data": []}
    status, answer = client.request(
        "POST", "/v2/models/tiny/infer", json.dumps({"inputs": [tensor]})
    )
    assert (status, "1 to 2 images" in answer["error"]) == (413, True)


class Slow(nn.Module):
    """A net that waits until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.free, self.busy = load()[0], threading.Event(), threading.Event()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.busy.set()
        self.free.wait()
        logits: torch.Tensor = self.net(images)
        return logits


@pytest.fixture
def slow(serve: Callable[..., Site]) -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.free.set()  # before the servers end


def test_a_full_queue_refuses_more(serve, slow):
    site = serve(model=slow, limits=Limits(queue=2, wait=0.0), options={})
    client, picture = site.client(), pictures(1)[0]
    with ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(site.client().predict, name, picture) for name in "ab"]
        while site.service.metrics.registry.get_sample_value("dab_requests_in_progress") < 2:
            time.sleep(0.01)
        status, answer = client.predict("c", picture)
        assert (status, client.answered.headers["retry-after"]) == (429, "1")
        assert "2 requests are in progress" in answer["error"]
        assert client.get("/v2/health/live")[0] == 200  # what needs no model is still answered
        slow.free.set()
        assert [each.result()[0] for each in accepted] == [200, 200]
    assert client.predict("c", picture)[0] == 200


def test_requests_that_take_too_long_are_given_up(serve, slow):
    site = serve(model=slow, limits=Limits(timeout=1.0, wait=0.0), options={})
    client, picture = site.client(), pictures(1)[0]
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(site.client().predict, "a", picture)
        slow.busy.wait()
        assert client.predict("b", picture)[0] == 503
        assert started.result()[0] == 504
    slow.free.set()
    assert client.predict("c", picture)[0] == 200
    assert client.get("/streams/a")[1]["totals"]["samples"] == 1
    assert client.get("/streams/b")[0] == 404  # the model has never seen its image


def test_the_number_of_streams_is_limited(serve):
    site = serve(limits=Limits(streams=2))
    client = site.client()
    picture = pictures(1)[0]
    assert [client.predict(name, picture)[0] for name in "abca"] == [200, 200, 507, 200]
    client.request("DELETE", "/streams/a")
    assert client.predict("c", picture)[0] == 200


def test_a_client_that_sends_nothing_is_dropped(serve):
    site = serve(patience=0.3)
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        head = "POST /streams/a/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(f"{head}Content-Type: image/png\r\nContent-Length: 9\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_answers_do_not_wait_for_delayed_acknowledgments(site, client):
    client.get("/v2")
    (protocol,) = site.server.server_state.connections
    connection = protocol.transport.get_extra_info("socket")
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_token_is_required_if_there_is_one(serve):
    site = serve(token="correct horse battery")
    stranger, friend = site.client(), site.client("correct horse battery")
    for path in ("/streams", "/metrics", "/v2", "/v2/models/tiny", "/nowhere"):
        assert stranger.get(path)[0] == 401
        assert stranger.answered.headers["www-authenticate"] == "Bearer"
        assert site.client("wrong").get(path)[0] == 401
        assert friend.get(path)[0] == (404 if path == "/nowhere" else 200)
    assert stranger.predict("a", pictures(1)[0])[0] == 401
    assert friend.predict("a", pictures(1)[0])[0] == 200
    for path in ("/", "/v2/health/live", "/v2/health/ready"):
        assert stranger.get(path)[0] == 200
    assert "cam" not in stranger.get("/")[1]  # the page itself tells nothing


def test_pages_of_other_sites_cannot_use_the_server(client):
    body = png(pictures(1)[0])
    path = "/streams/a/predict"
    evil = PNG | {"origin": "https://evil.example"}
    assert client.request("POST", path, body, evil)[0] == 403
    assert client.request("DELETE", "/streams/a", None, {"origin": "null"})[0] == 403
    assert client.request("POST", path, body, PNG | {"host": "evil.example"})[0] == 400
    own = f"http://127.0.0.1:{client.connection.port}"
    assert client.request("POST", path, body, PNG | {"origin": own})[0] == 200
    client.get("/")
    assert client.answered.headers["x-frame-options"] == "DENY"
    assert "script-src 'sha256-" in client.answered.headers["content-security-policy"]


def test_a_net_whose_output_is_not_finite_is_an_error(serve):
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net("layernorm")

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.net(images) * float("nan")
            return logits

    site = serve(model=Broken())
    client = site.client()
    status, answer = client.predict("a", pictures(1)[0])
    assert (status, "not finite" in answer["error"]) == (500, True)


# What it reports.


def test_logs_are_json_lines():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    logger = logging.Logger("dab.test")
    logger.addHandler(handler)
    logger.warning("two\nlines of %s", "text", extra={"stream": 'a"b', "seconds": 0.5})
    try:
        raise OSError("no space")
    except OSError:
        logger.exception("could not save")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "dab.test",
        "message": "two\nlines of text",
        "stream": 'a"b',
        "seconds": 0.5,
    }
    assert "OSError: no space" in second["exception"]


def test_metrics_name_some_streams_and_sum_the_others(serve, monkeypatch):
    from prometheus_client.parser import text_string_to_metric_families

    monkeypatch.setattr("dab.serve.service.NAMED", 2)
    site = serve(options={**OPTIONS, "guard": True})
    client = site.client()
    nasty = 'c"\\{}'
    for name, count in (("a", 12), ("c%22%5C%7B%7D", 3), ("d", 2), ("e", 4)):
        for picture in pictures(count):
            client.predict(name, picture)
    client.get("/streams/nobody")
    text = client.get("/metrics")[1]
    found = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    images = {key[1]: value for key, value in found.items() if key[0] == "dab_stream_images_total"}
    assert images == {("a",): 12, (nasty,): 3, ("",): 6}
    assert found["dab_stream_updates_total", ("a",)] == site.service.statuses["a"].updates
    assert found["dab_stream_buffer_images", ("a",)] == len(site.fleet.stream("a").buffer) > 0
    assert found["dab_streams", ("healthy",)] == 4
    assert found["dab_requests_total", ("200", "/streams/STREAM/predict")] == 21
    assert found["dab_requests_total", ("404", "/streams/STREAM")] == 1
    assert found["dab_batch_images_sum", ()] == 21
    assert found["dab_request_seconds_count", ("/streams/STREAM/predict",)] == 21


# States.


def test_streams_resume_after_an_orderly_end(serve, tmp_path):
    site = serve(folder=tmp_path)
    client = site.client()
    pixels = pictures(30)
    for picture in pixels[:20]:
        client.predict("cam-1", picture)
    client.close()
    site.close()
    assert counts(tmp_path) == {"cam-1": 20}
    site = serve(folder=tmp_path)
    client = site.client()
    assert client.get("/streams")[1]["saved"] == 1
    answers = [client.predict("cam-1", picture)[1] for picture in pixels[20:]]
    assert answers[-1]["health"]["images"] == 30
    assert client.get("/streams")[1]["saved"] == 0
    expected = one_by_one(pixels)[20:].double().softmax(1).sort(descending=True).values[:, :5]
    assert np.allclose([answer["probabilities"] for answer in answers], expected, atol=1e-4)


@pytest.mark.slow
def test_sigterm_answers_what_was_accepted_and_saves(tmp_path):
    process = Process(tmp_path)
    client = Client(process.port)
    for picture in pictures(5):
        assert client.predict("cam-1", picture)[0] == 200
    client.close()
    said = process.end(signal.SIGTERM)
    assert counts(tmp_path) == {"cam-1": 5}, said


def kill_under_load(folder: Path, moment: int) -> dict[str, list[int]]:
    """Feed streams until SIGKILL after some images; the counts that each stream answered with."""
    process = Process(folder, "--save-every", "1")
    answered: dict[str, list[int]] = {f"cam-{n}": [] for n in range(4)}

    def feed(name: str, seed: int) -> None:
        client = Client(process.port)
        try:
            for picture in pictures(moment, seed):
                status, answer = client.predict(name, picture)
                assert status == 200, answer
                answered[name].append(answer["health"]["images"])
        except (OSError, HTTPException):
            pass  # the server is gone
        finally:
            client.close()

    with ThreadPoolExecutor(len(answered)) as pool:
        feeding = [pool.submit(feed, name, seed) for seed, name in enumerate(answered)]
        while sum(map(len, answered.values())) < moment and process.running.poll() is None:
            time.sleep(0.001)
        process.end(signal.SIGKILL)
    for each in feeding:
        each.result()
    return answered


def check_kills(folder: Path, moments: list[int]) -> None:
    """After each kill all files are whole, and every stream resumes from its own."""
    saved: dict[str, int] = {}
    for moment in moments:
        answered = kill_under_load(folder, moment)
        now = counts(folder)
        for name, images in answered.items():
            first = saved.get(name, 0) + 1
            assert images == [*range(first, first + len(images))], name
            # One more may have been learned from and saved, but not answered.
            assert first - 1 <= now.get(name, 0) <= first + len(images), (name, saved, now)
        saved = now
    assert sum(saved.values()) > 100  # else nothing was ever saved


@pytest.mark.slow
def test_streams_survive_kills_under_load(tmp_path):
    check_kills(tmp_path, [170, 110])


@pytest.mark.slow
@pytest.mark.exhaustive
def test_streams_survive_kills_at_thirty_moments(tmp_path):
    rng = random.Random(1)
    check_kills(tmp_path, [rng.randrange(10, 200) for _ in range(30)])


def test_a_stream_moves_to_another_server_that_shares_the_folder(serve, tmp_path):
    one, other = serve(folder=tmp_path, save_every=1), serve(folder=tmp_path, save_every=1)
    pixels = pictures(60)
    for picture in pixels[:50]:
        one.client().predict("cam-1", picture)
    saved = counts(tmp_path)["cam-1"]
    assert saved > 0
    status, answer = other.client().predict("cam-1", pixels[saved])
    assert (status, answer["health"]["images"]) == (200, saved + 1)
    expected = one_by_one(pixels[: saved + 1])[-1].double().softmax(0).sort(descending=True)
    assert answer["probabilities"] == pytest.approx(expected.values[:5].tolist(), abs=1e-4)


def test_a_damaged_state_fails_its_own_stream_only(serve, tmp_path):
    (tmp_path / "cam-1.pt").write_bytes(b"damaged")
    site = serve(folder=tmp_path)
    client = site.client()
    status, answer = client.predict("cam-1", pictures(1)[0])
    assert (status, "damaged" in answer["error"]) == (500, True)
    status, answer = client.get("/streams/cam-1")
    assert (status, "damaged" in answer["error"]) == (500, True)
    assert client.predict("cam-2", pictures(1)[0])[0] == 200
    assert client.request("DELETE", "/streams/cam-1")[0] == 200
    assert client.predict("cam-1", pictures(1)[0])[0] == 200


def test_a_folder_that_cannot_be_written_does_not_end_the_service(serve, tmp_path):
    folder = tmp_path / "file"
    site = serve(folder=folder / "states", save_every=1)
    folder.write_text("in the way")
    client = site.client()
    for picture in pictures(40):
        assert client.predict("cam-1", picture)[0] == 200
    errors = site.service.metrics.registry.get_sample_value("dab_save_errors_total")
    assert errors >= 1


# The command.


def test_wrong_options_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ["serve", "--port=0", "--model=tests.support.serving:load"]
    (tmp_path / "token").write_text("short")
    (tmp_path / "labels").write_text("cat\ndog\n")
    cases = {
        "dab: the token in token must have 16": ["--token-file=token"],
        "has 2 values": ["--method=dab capacity=4,8"],
        "unknown": ["--method=no-such-method"],
        "6 classes, but there are 2 labels": ["--labels=labels"],
        "only 8 stay in memory": ["--in-memory=8"],
    }
    for said, options in cases.items():
        assert main([*model, *options]) == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [tmp_path / "labels", tmp_path / "token"]
