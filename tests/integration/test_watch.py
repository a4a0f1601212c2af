"""`dab watch`: a real server, and a real browser that looks at it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from dab.benchmark.results.result import Result, results
from dab.cli import main
from dab.report import gather
from dab.report.page import to_json
from dab.report.watch import application, server
from dab.utils.web.server import HEADERS, listen
from tests.support.report_runs import make_runs, save, take_back

PATIENCE = 0.5


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("watch"))


class Site:
    """A server in a thread: of a folder, or of another application."""

    def __init__(self, out: Path | None = None, app: Any = None, **options: Any) -> None:
        self.socket = listen()
        self.host, self.port = self.socket.getsockname()
        self.address = f"http://{self.host}:{self.port}"
        app = app or application(out, every=0.2, **options)
        self.server = server(app, patience=PATIENCE)
        self.server.config.timeout_keep_alive = 300  # so that only patience ends a connection
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],))
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        request = urllib.request.Request(self.address + path, headers=headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode(), answer.headers["etag"] or ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), ""

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


@pytest.fixture
def out(runs: Path, tmp_path: Path) -> Path:
    shutil.copytree(runs, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def site(out: Path) -> Iterator[Site]:
    site = Site(out)
    yield site
    site.close()


def in_progress(out: Path, method: str, seen: int) -> Result:
    """Make the runs of a method unfinished; one of them as it was."""
    found = [result for result in results(out) if result.card.method == method]
    for result in found:
        take_back(result, out, seen)
    return found[0]


def new_runs(out: Path) -> None:
    """A run that comes before others of its stream, and one of a stream that comes first."""
    (source,) = [
        result
        for result in results(out)
        if result.card.is_source and (result.card.setting, result.card.seed) == ("correlated", 0)
    ]
    card = source.card
    other = replace(card, options={"output": "other"}, source_error=source.error)
    save(replace(source, card=other), out)
    save(replace(source, card=replace(card, data=replace(card.data, name="a"))), out)


def test_the_server_answers_this_machine_alone(site):
    assert site.socket.getsockname()[0] == "127.0.0.1"
    assert site.get("/", Host="evil.example")[0] == 400
    assert site.get("/data.json", Host="evil.example:80")[0] == 400
    assert site.get("/", Host="localhost:1")[0] == 200
    assert site.get("/../../etc/passwd")[0] == 404


def test_the_server_answers_by_the_names_that_it_was_given(out):
    site = Site(out, hosts=("lab-machine",))
    answers = [site.get("/", Host=name)[0] for name in ("lab-machine:1", "localhost", "evil")]
    site.close()
    assert answers == [200, 200, 400]
    everybody = Site(out, hosts=("0.0.0.0",))
    status, _, _ = everybody.get("/", Host="whoever")
    everybody.close()
    assert status == 200


@pytest.mark.parametrize("port", ["65536", "70000", "-1", "http"])
def test_ports_that_do_not_exist_are_refused(port, out, capsys):
    with pytest.raises(SystemExit):
        main(["watch", str(out), f"--port={port}"])
    assert "argument --port: " in capsys.readouterr().err


@pytest.mark.parametrize("host", ["no such name", "::1", "203.0.113.1"])
def test_hosts_that_are_not_here_are_named(host, out, capsys):
    assert main(["watch", str(out), "--host", host, "--port", "0"]) == 2
    assert f"cannot listen on port 0 of {host}: " in capsys.readouterr().err


def test_the_data_is_what_is_there_now(site, out):
    status, text, tag = site.get("/data.json")
    assert status == 200
    assert json.loads(text) == json.loads(json.dumps(to_json(gather(out))))
    result = in_progress(out, "note", 96)
    take_back(result, out, 96, at=time.time() - 150)
    status, text, other = site.get("/data.json")
    assert tag != other
    states = {name: run["state"] for name, run in json.loads(text)["runs"].items() if run["state"]}
    assert len(states) == 2
    assert states[result.card.run_id]["silent"] >= 2


def test_what_did_not_change_is_not_sent_again(site):
    _, _, tag = site.get("/data.json")
    status, text, _ = site.get("/data.json", **{"If-None-Match": tag})
    assert (status, text) == (304, "")


def test_an_empty_folder_is_waited_for(tmp_path):
    site = Site(tmp_path / "to come")
    status, text, _ = site.get("/")
    site.close()
    assert status == 200
    assert "Waiting for a run" in text
    assert "to come" in text
    assert 'http-equiv="refresh"' in text


def test_a_damaged_result_is_named_and_the_rest_is_served(site, out):
    file = next(out.glob("*/result.json"))
    file.write_text("{")
    status, text, _ = site.get("/data.json")
    assert status == 200
    found = json.loads(text)
    assert [problem["run"] for problem in found["problems"]] == [str(file.parent)]
    assert len(found["runs"]) == 13
    status, text, _ = site.get("/")
    assert status == 200
    assert file.parent.name in text


def test_if_every_result_is_damaged_the_page_says_so_and_waits(site, out):
    for file in out.glob("*/result.json"):
        file.write_text("{<b>")
    status, text, _ = site.get("/")
    assert status == 200
    assert "no readable run" in text
    assert str(file.parent) in text
    assert site.get("/data.json")[0] == 500


# Headers and slow clients


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "localhost", 200),
        ("/data.json", "localhost", 200),
        ("/nothing", "localhost", 404),
        ("/", "evil.example", 400),
    ],
)
def test_every_response_has_the_usual_headers(path, host, status, site):
    connection = HTTPConnection(site.host, site.port)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    assert answer.status == status
    for name, value in HEADERS.items():
        found = answer.headers.get_all(name)
        assert len(found) == 1
        if (path, status, name) not in [
            ("/", 200, "content-security-policy"),
            ("/data.json", 200, "cache-control"),
        ]:
            assert found == [value]
    assert answer.headers["server"] is None
    if (path, status) == ("/", 200):
        allowed = answer.headers["content-security-policy"]
        page = answer.read().decode()
        assert "frame-ancestors 'none'" in allowed
        assert "unsafe-inline" not in re.search("script-src [^;]*", allowed).group()
        assert allowed.removesuffix("; frame-ancestors 'none'") in page
    connection.close()


def wait_until_dropped(client: socket.socket) -> None:
    client.settimeout(15)  # less than the default patience
    with suppress(ConnectionResetError):
        while client.recv(1 << 16):
            pass


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n12",
        b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\nG",
    ],
)
def test_a_client_that_stalls_is_dropped(sent, site):
    with socket.create_connection((site.host, site.port)) as client:
        client.sendall(sent)
        wait_until_dropped(client)
    assert site.get("/")[0] == 200


def send_byte_by_byte(client: socket.socket) -> None:
    for _ in range(200):
        client.sendall(b"G")
        time.sleep(PATIENCE / 10)


def test_a_client_that_sends_byte_by_byte_is_dropped(site):
    dropped = pytest.raises((BrokenPipeError, ConnectionResetError))
    with socket.create_connection((site.host, site.port)) as client, dropped:
        send_byte_by_byte(client)


LARGE = b"0123456789" * 400_000  # more than the kernel buffers for a connection


@pytest.fixture
def large() -> Iterator[Site]:
    site = Site(app=PlainTextResponse(LARGE))
    yield site
    site.close()


def ask_without_reading(site: Site) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((site.host, site.port))
    client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_client_that_does_not_read_is_dropped(large):
    connections = large.server.server_state.connections
    with ask_without_reading(large):
        wait_for(lambda: len(connections) == 1)
        wait_for(lambda: not connections)
    assert large.get("/")[1] == LARGE.decode()


def test_a_client_that_reads_slowly_gets_everything(large):
    with ask_without_reading(large) as client:
        start, received = time.monotonic(), bytearray()
        while not received.endswith(LARGE):
            part = client.recv(1 << 16)
            assert part
            received += part
            if time.monotonic() - start < 4 * PATIENCE:  # at first at the pace of a slow line
                time.sleep(0.005)


def test_a_port_that_is_taken_is_named(site, out, capsys):
    port = site.socket.getsockname()[1]
    assert main(["watch", str(out), "--port", str(port)]) == 2
    assert f"cannot listen on port {port} of 127.0.0.1" in capsys.readouterr().err


def test_the_command_serves_until_interrupted(out):
    command = [sys.executable, "-m", "dab", "watch", str(out), "--port", "0"]
    command += ["--host", "LOCALHOST"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    address = re.search(r"http://127\.0\.0\.1:\d+/", line).group()
    try:
        # It listens before it says so, and answers as soon as it can.
        with urllib.request.urlopen(address, timeout=300) as answer:
            assert b"In progress" in answer.read()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")


def test_an_open_page_follows_the_runs(site, out, browser):
    from playwright.sync_api import expect

    result = in_progress(out, "note", 96)
    complaints, foreign = [], []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: foreign.append(r.url) if site.address not in r.url else None)
    page.goto(site.address)
    page.get_by_role("navigation").get_by_text("tiny, correlated").click()
    running = page.locator("#progress .running")
    expect(running).to_have_count(2)
    expect(running.first).to_contain_text("46 %")
    tent = page.locator("#legend").get_by_role("button", name="TENT")
    tent.click()
    page.locator("#filter").fill("note")
    table = page.locator("#tables .setting").filter(has_text="correlated")
    head = table.locator("thead th").filter(has_text="tiny")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    new_runs(out)
    expect(table.locator("thead th").nth(2)).to_contain_text("a")  # where tiny was
    expect(page.get_by_role("navigation").get_by_role("button")).to_have_count(3)
    expect(page.locator("#time g.line")).to_have_count(6)
    expect(tent).to_have_attribute("aria-pressed", "false")
    pressed = page.get_by_role("navigation").locator("[aria-pressed=true]")
    expect(pressed).to_have_text("tiny, correlated")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(head.get_by_role("button")).to_be_focused()

    folder = take_back(result, out, 160)
    expect(running.filter(has_text="76 %")).to_have_count(1)
    save(result, out)
    (folder / "progress.json").unlink()
    expect(running).to_have_count(1)
    # What the reader had chosen is as it was.
    expect(tent).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#time g.line")).to_have_count(6)
    expect(page.locator("#filter")).to_have_value("note")
    expect(page.locator("#live")).to_have_text("· live")
    assert (complaints, foreign) == ([], [])
    page.close()
