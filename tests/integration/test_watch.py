"""`dab watch`: a real server, and a real browser that looks at it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dab.cli import main
from dab.report import gather
from dab.report.watch import application, listen
from dab.utils import files
from tests.support.report_runs import make_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("watch"))


class Site:
    """A server of a folder in a thread."""

    def __init__(self, out: Path, **options: Any) -> None:
        self.socket = listen()
        self.address = "http://{}:{}".format(*self.socket.getsockname())
        served = application(out, every=0.2, **options)
        self.server = uvicorn.Server(uvicorn.Config(served, log_level="error"))
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


def under_way(out: Path, method: str, seen: int) -> tuple[Path, str]:
    """Make the runs of a method unfinished; one of them, and its result as it was."""
    results = {}
    for file in out.glob("*/result.json"):
        result = json.loads(file.read_text())
        if result["card"]["method"] == method:
            results[file] = file.read_text()
            tell(file, result, seen)
            file.unlink()
    return next(iter(results.items()))


def tell(file: Path, result: dict, seen: int) -> None:
    progress = {"card": result["card"], "seen": seen, "samples": 210, "window": 16}
    progress |= {"windows": result["windows"][: seen // 16], "time": time.time()}
    file.with_name("progress.json").write_text(json.dumps(progress))


def new_runs(out: Path) -> None:
    """A run that stands before others of its stream, and one of a stream that stands first."""
    found = [json.loads(file.read_text()) for file in out.glob("*/result.json")]
    place = ("source", "correlated", 0)
    (source,) = [
        one for one in found if (*map(one["card"].get, ("method", "setting", "seed")),) == place
    ]
    card = source["card"]
    cards = {
        "row": {**card, "options": {"output": "other"}, "source_error": source["error"]},
        "stream": {**card, "data": {**card["data"], "name": "a"}},
    }
    for name, changed in cards.items():
        files.write(out / name / "result.json", json.dumps({**source, "card": changed}))


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
    found = json.loads(text)
    assert found.pop("now") == pytest.approx(time.time(), abs=61)
    assert found == gather(out)
    under_way(out, "note", 96)
    status, text, other = site.get("/data.json")
    assert tag != other
    assert sum("seen" in run for run in json.loads(text)["runs"].values()) == 2


def test_what_did_not_change_is_not_sent_again(site):
    for _ in range(2):  # a minute may end in between
        _, _, tag = site.get("/data.json")
        status, text, _ = site.get("/data.json", **{"If-None-Match": tag})
        if status == 304:
            break
    assert (status, text) == (304, "")


def test_an_empty_folder_is_waited_for(tmp_path):
    site = Site(tmp_path / "to come")
    status, text, _ = site.get("/")
    site.close()
    assert status == 200
    assert "to come: waiting for a run" in text
    assert 'http-equiv="refresh"' in text


def test_a_damaged_result_is_named_and_does_not_end_the_server(site, out):
    file = next(out.glob("*/result.json"))
    before = file.read_text()
    file.write_text("{")
    for path in ("/", "/data.json"):
        status, text, _ = site.get(path)
        assert status == 500
        assert f"{file} is damaged" in text
    file.write_text(before)
    assert site.get("/")[0] == 200


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
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert b"Under way" in answer.read()
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")


def test_an_open_page_follows_the_runs(site, out, browser):
    from playwright.sync_api import expect

    file, result = under_way(out, "note", 96)
    complaints, foreign = [], []
    page = browser.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: foreign.append(r.url) if site.address not in r.url else None)
    page.goto(site.address)
    page.get_by_role("navigation").get_by_text("tiny, correlated").click()
    running = page.locator("#underway .running")
    expect(running).to_have_count(2)
    expect(running.first).to_contain_text("46 %")
    tent = page.locator("#legend").get_by_role("button", name="tent")
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

    tell(file, json.loads(result), 160)
    expect(running.filter(has_text="76 %")).to_have_count(1)
    file.write_text(result)
    file.with_name("progress.json").unlink()
    expect(running).to_have_count(1)
    # What the reader had chosen is as it was.
    expect(tent).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#time g.line")).to_have_count(6)
    expect(page.locator("#filter")).to_have_value("note")
    expect(page.locator("#live")).to_have_text("· live")
    assert (complaints, foreign) == ([], [])
    page.close()
