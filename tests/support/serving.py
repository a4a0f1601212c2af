"""A server in this process or in another, and clients of it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import dab
from dab.data.transform import Transform
from dab.fleet import Fleet
from dab.serve.app import Served, application
from dab.serve.limits import Limits
from dab.serve.server import server
from dab.serve.service import Service
from dab.utils.web.server import listen
from tests.support.nets import CLASSES, SIZE, net, stream

__all__ = [
    "METHOD",
    "OPTIONS",
    "Client",
    "Process",
    "Site",
    "alone",
    "counts",
    "load",
    "pictures",
    "png",
]

ROOT = Path(__file__).parent.parent.parent
MODEL = "tests.support.serving:load"
METHOD = "dab"
OPTIONS: dict[str, Any] = {"capacity": 8, "batch_size": 4, "admission": "running", "lr": 0.01}
NAME = "tiny"


def load() -> tuple[nn.Module, Transform]:
    """The model, for `dab serve --model`."""
    return net("layernorm").eval(), Transform(resize=SIZE, crop=SIZE)


def alone() -> dab.Adapter:
    """An adapter as the server gives each stream."""
    return dab.create(METHOD, dab.load_model(MODEL).model, **OPTIONS)


def counts(folder: Path) -> dict[str, int]:
    """The images that each saved stream has seen; a damaged file is an error."""
    found = {}
    for file in folder.glob("*.pt"):
        adapter = alone()
        adapter.load(file)
        found[file.stem] = adapter.totals.samples
    return found


def pictures(count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Images (count, height, width, 3) of a stream."""
    (batch,) = stream((count,), seed)
    return (batch * 255).round().byte().permute(0, 2, 3, 1).numpy()


def png(pixels: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    """The file of an image."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


class Client:
    """One connection that is kept."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=600)
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and content of a response; JSON is parsed."""
        self.connection.request(method, path, body, {**self.headers, **(headers or {})})
        answer = self.connection.getresponse()
        content = answer.read()
        self.answered = answer
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(content) if is_json else content.decode()

    def get(self, path: str) -> tuple[int, Any]:
        return self.request("GET", path)

    def predict(self, name: str, pixels: NDArray[np.uint8]) -> tuple[int, Any]:
        headers = {"content-type": "image/png"}
        return self.request("POST", f"/streams/{name}/predict", png(pixels), headers)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Site:
    """A server in a thread."""

    def __init__(
        self,
        *,
        model: nn.Module | None = None,
        folder: Path | None = None,
        limits: Limits | None = None,
        save_every: int = 10,
        options: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        loaded = dab.load_model(MODEL)
        options = OPTIONS if options is None else options
        fleet = Fleet(model or loaded.model, METHOD, folder=folder, **options)
        self.service = Service(fleet, limits=limits, save_every=save_every if folder else None)
        self.fleet = fleet
        served = Served(NAME, loaded.transform, CLASSES, METHOD)
        self.socket = listen()
        self.port = self.socket.getsockname()[1]
        self.clients: list[Client] = []
        self.address = f"http://127.0.0.1:{self.port}"
        self.server = server(application(self.service, served, every=0.2, **others), patience=5)
        self.thread = threading.Thread(target=self.server.run, args=([self.socket],), daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def client(self, token: str | None = None) -> Client:
        """A client that is closed with the server."""
        self.clients.append(Client(self.port, token))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.server.should_exit = True
        self.thread.join()
        self.socket.close()


class Process:
    """`dab serve` in a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        """Start a server, and wait until it has its port."""
        method = " ".join([METHOD, *(f"{name}={value}" for name, value in OPTIONS.items())])
        command = [sys.executable, "-m", "dab", "serve", "--port", "0", "--threads", "1"]
        command += ["--model", MODEL, "--method", method]
        command += ["--folder", str(folder), "--log-level", "warning", *more]
        paths = [f"{ROOT}/src", str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.running = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.running.stdout is not None
        lines = []
        for line in self.running.stdout:  # Ray may speak before the server does
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                return
            lines.append(line)
        raise AssertionError("".join(lines) + self.end(signal.SIGKILL))

    def end(self, how: signal.Signals) -> str:
        """Send a signal and wait; what the server said on stderr."""
        self.running.send_signal(how)
        _, said = self.running.communicate()
        return said
