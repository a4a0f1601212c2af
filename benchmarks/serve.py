"""How fast `dab serve` answers, and whether its memory stays flat: `python -m benchmarks.serve`.

- `load`: requests per second and latency for 1 to 256 streams, for the plain model and for methods
  behind the same server, in turns. Each stream sends an image when the last one was answered.
- `soak`: one long run; requests per second and the server's memory along the way.

Server and clients share the cores of one machine, on 127.0.0.1. The model is the small ViT for
glyphs (32 x 32 pixels); images are PNG files with noise that it was not trained on.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from torch import nn

from dab.data.datasets.glyphs import Glyphs
from dab.data.transform import Transform
from dab.models import zoo

METHODS = ("source", "dab capacity=64", "dab capacity=64 guard=rollback")
IMAGES = 1000  # different ones, which streams show again and again
WARMUP = 0.2  # of the time


def load() -> tuple[nn.Module, Transform]:
    """The model, for `dab serve --model`."""
    return zoo.load("glyphs"), Transform(resize=32, crop=32)


def files() -> list[bytes]:
    """Images of letters with noise, as PNG files."""
    rng = np.random.default_rng(0)
    clean = Glyphs.of_split("test", IMAGES).batch(range(IMAGES)).astype(float)
    noisy = np.clip(clean + rng.normal(0, 25, clean.shape), 0, 255).astype(np.uint8)
    found = []
    for pixels in noisy:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append(file.getvalue())
    return found


@contextmanager
def serving(method: str) -> Iterator[tuple[int, int]]:
    """A server; yields its port and process id."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dab", "serve", "--model", "benchmarks.serve:load"]
        command += ["--method", method, "--port", "0", "--threads", "1", "--folder", folder]
        command += ["--log-level", "warning"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None, "the server did not start"
        try:
            yield int(found[1]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


async def stream(
    port: int, name: str, contents: list[bytes], until: float, answers: list[tuple[float, float]]
) -> None:
    """Send image after image; appends the time of each answer, and how long it took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.monotonic() < until:
        content = contents[number % len(contents)]
        number += 1
        sent = time.monotonic()
        writer.write(
            f"POST /streams/{name}/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: image/png\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        now = time.monotonic()
        answers.append((now, now - sent))
    writer.close()


async def streams(port: int, count: int, seconds: float) -> list[tuple[float, float]]:
    """The answers to so many streams at a time."""
    contents = files()
    until = time.monotonic() + seconds
    answers: list[tuple[float, float]] = []
    await asyncio.gather(
        *(
            stream(
                port, f"cam-{n}", contents[n % IMAGES :] + contents[: n % IMAGES], until, answers
            )
            for n in range(count)
        )
    )
    return answers


def memory(process: int) -> float:
    """The memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def measure_load(chosen: argparse.Namespace) -> None:
    print("| method | streams | images/s | p50 ms | p99 ms |\n|---|---|---|---|---|")
    for count in chosen.streams:
        for method in chosen.methods:
            with serving(method) as (port, _):
                began = time.monotonic()
                answers = asyncio.run(streams(port, count, chosen.seconds))
            start = began + WARMUP * chosen.seconds
            times = np.array([took for at, took in answers if at >= start])
            rate = len(times) / (answers[-1][0] - start)
            p50, p99 = 1000 * np.quantile(times, [0.5, 0.99])
            print(f"| {method} | {count} | {rate:.0f} | {p50:.1f} | {p99:.1f} |", flush=True)


def measure_soak(chosen: argparse.Namespace) -> None:
    (method,) = chosen.methods
    with serving(method) as (port, process):
        for part in range(chosen.parts):
            (count,) = chosen.streams
            began = time.monotonic()
            answers = asyncio.run(streams(port, count, chosen.seconds / chosen.parts))
            rate = len(answers) / (time.monotonic() - began)
            print(
                f"part {part + 1}: {len(answers)} images, {rate:.0f} images/s, server "
                f"{memory(process):.1f} MB",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command")
    load_parser = commands.add_parser("load")
    load_parser.add_argument("--methods", nargs="+", default=METHODS)
    load_parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    load_parser.add_argument("--seconds", type=float, default=8)
    soak = commands.add_parser("soak")
    soak.add_argument("--methods", nargs=1, default=[METHODS[-1]])
    soak.add_argument("--streams", type=int, nargs=1, default=[64])
    soak.add_argument("--seconds", type=float, default=240)
    soak.add_argument("--parts", type=int, default=12)
    chosen = parser.parse_args(sys.argv[1:] or ["load"])
    (measure_soak if chosen.command == "soak" else measure_load)(chosen)


if __name__ == "__main__":
    main()
