"""How fast `dab serve` answers, and whether its memory stays flat: `python -m benchmarks.serve`.

- `load`: requests per second and latency for 1 to 256 streams, for the plain model and for methods
  behind the same server, in turns. Each stream sends an image when the last one was answered. All
  resume from states with full buffers, saved at different moments, so that updates are due from the
  first second, and not for all streams at once.
- `soak`: one long run at a given rate. Streams come and go, so they are put aside and brought
  back; prints what the server did and its memory along the way.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count as numbers
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from torch import nn

import dab
from dab.data.datasets.glyphs import Glyphs
from dab.data.transform import Transform
from dab.models import zoo
from dab.utils.text import parse_options

MODEL = "benchmarks.serve:load"
DAB = "dab capacity=16 batch_size=16 admission=running"
METHODS = ("source", DAB, f"{DAB} guard=rollback")
IMAGES = 1000  # different ones, which streams show again and again
WARMUP = 2  # answers of each stream that are not measured
SEEN = range(100, 116)  # images that the states of `load` have seen: updates are 10 or so apart


def load() -> tuple[nn.Module, Transform]:
    """The model, for `dab serve --model`."""
    return zoo.load("glyphs"), Transform(resize=32, crop=32)


def pictures() -> NDArray[np.uint8]:
    """Images of letters with noise."""
    rng = np.random.default_rng(0)
    clean = Glyphs.of_split("test", IMAGES).batch(range(IMAGES)).astype(float)
    return np.clip(clean + rng.normal(0, 25, clean.shape), 0, 255).astype(np.uint8)


def files() -> list[bytes]:
    """The images as PNG files."""
    found = []
    for pixels in pictures():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found.append(file.getvalue())
    return found


def states(method: str) -> list[bytes]:
    """Saved states of streams that have seen some images."""
    name, options = parse_options(method)
    model = dab.load_model(MODEL).model
    adapter = dab.create(name, model, **{option: value for option, (value,) in options.items()})
    images = torch.from_numpy(pictures()).permute(0, 3, 1, 2)
    found = []
    with TemporaryDirectory() as folder:
        file = Path(folder) / "state.pt"
        for number in range(max(SEEN)):
            adapter(images[number, None])
            if number + 1 in SEEN:
                adapter.save(file)
                found.append(file.read_bytes())
    return found


@contextmanager
def serving(
    method: str, *options: str, resumed: Sequence[bytes] = (), streams: int = 0
) -> Iterator[tuple[int, int]]:
    """A server, whose streams resume from states; yields its port and process id."""
    with TemporaryDirectory() as folder:
        for number in range(streams if resumed else 0):
            (Path(folder) / f"cam-{number}.pt").write_bytes(resumed[number % len(resumed)])
        command = [sys.executable, "-m", "dab", "serve", "--model", MODEL]
        command += ["--method", method, "--port", "0", "--threads", "1", "--folder", folder]
        command += ["--log-level", "warning", "--timeout", "600", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None, "the server did not start"
        try:
            yield int(found[1]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


class Client:
    """One connection, which is kept."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.writer.close()

    async def predict(self, name: str, content: bytes) -> int:
        """Send an image and wait for the answer; its status."""
        self.writer.write(
            f"POST /streams/{name}/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: image/png\r\nContent-Length: {len(content)}\r\n\r\n".encode()
            + content
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await self.reader.readexactly(int(length[1]))
        return int(head.split()[1])


def totals(port: int) -> dict[str, float]:
    """The sums of the server's metrics over all labels, by name."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def memory(process: int) -> float:
    """The memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def percentiles(seconds: Sequence[float]) -> str:
    """Columns of a table: p50 and p99 in milliseconds."""
    p50, p99 = 1000 * np.quantile(seconds, [0.5, 0.99])
    return f"{p50:.1f} | {p99:.1f}"


async def flood(port: int, count: int, seconds: float) -> str:
    """Columns of a table: images per second, latencies, updates per image, and CPU time."""
    contents = files()
    took: list[float] = []
    counted: list[dict[str, float]] = []
    waiting, warm = count, asyncio.Event()
    is_over = False

    async def camera(number: int) -> None:
        nonlocal waiting
        shown = cycle(contents[number:] + contents[:number])
        async with Client(port) as client:
            for answered in numbers(1):
                if is_over:
                    return
                sent = time.monotonic()
                status = await client.predict(f"cam-{number}", next(shown))
                assert status == 200, status
                if counted:
                    took.append(time.monotonic() - sent)
                if answered == WARMUP:
                    waiting -= 1
                    if not waiting:
                        warm.set()

    async def clock() -> float:
        nonlocal is_over
        await warm.wait()  # all streams have resumed, and what they did before can be subtracted
        counted.append(await asyncio.to_thread(totals, port))
        began = time.monotonic()
        await asyncio.sleep(seconds)
        is_over = True
        return began

    began, *_ = await asyncio.gather(clock(), *(camera(number) for number in range(count)))
    ended = time.monotonic()
    counted.append(await asyncio.to_thread(totals, port))
    images, updates, cpu = (
        counted[1][name] - counted[0][name]
        for name in (
            "dab_stream_images_total",
            "dab_stream_updates_total",
            "process_cpu_seconds_total",
        )
    )
    return (
        f"{len(took) / (ended - began):.0f} | {percentiles(took)} | {updates / images:.3f} "
        f"| {1000 * cpu / images:.1f}"
    )


def measure_load(chosen: argparse.Namespace) -> None:
    engine = ["--engine", chosen.engine]
    resumed = {method: states(method) for method in chosen.methods if method != "source"}
    print(
        "| method | streams | images/s | p50 ms | p99 ms | updates per image | CPU ms per image |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in chosen.streams:
        for method in chosen.methods:
            states_of = resumed.get(method, ())
            with serving(method, *engine, resumed=states_of, streams=count) as (port, _):
                columns = asyncio.run(flood(port, count, chosen.seconds))
            print(f"| {method} | {count} | {columns} |", flush=True)


async def soak(port: int, process: int, chosen: argparse.Namespace) -> None:
    """Let streams take turns at a number of cameras, each of which sends images at a steady pace.

    A camera moves on to its next stream after `stay` seconds, and comes back to the first when it
    has shown all of its streams.
    """
    contents = files()
    began = time.monotonic()
    until = began + 60 * chosen.minutes
    took: list[float] = []  # since the last line
    sent = moves = failed = 0

    async def camera(number: int) -> None:
        nonlocal sent, moves, failed
        due = began + number / chosen.rate
        before = name = ""
        async with Client(port) as client:
            while due < until:
                await asyncio.sleep(due - time.monotonic())
                turn = int((due - began) / chosen.stay) * chosen.cameras
                name = f"cam-{(number + turn) % chosen.streams}"
                moves += name != before
                before = name
                started = time.monotonic()
                status = await client.predict(name, contents[sent % IMAGES])
                took.append(time.monotonic() - started)
                sent += 1
                failed += status != 200
                due = max(due + chosen.cameras / chosen.rate, started)  # late is late: no bursts

    async def watch() -> None:
        print("| minute | images | updates | saves | visits | errors | p50 ms | p99 ms | MB |")
        print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for minute in range(1, round(chosen.minutes) + 1):
            await asyncio.sleep(began + 60 * minute - time.monotonic())
            found = await asyncio.to_thread(totals, port)
            updates, saves = found["dab_stream_updates_total"], found["dab_save_seconds_count"]
            errors = failed + found["dab_save_errors_total"]
            print(
                f"| {minute} | {sent} | {updates:.0f} | {saves:.0f} | {moves} | {errors:.0f} "
                f"| {percentiles(took)} | {memory(process):.1f} |",
                flush=True,
            )
            took.clear()

    await asyncio.gather(watch(), *(camera(number) for number in range(chosen.cameras)))


def measure_soak(chosen: argparse.Namespace) -> None:
    options = ["--batch", str(chosen.cameras), "--in-memory", str(2 * chosen.cameras)]
    with serving(chosen.method, *options) as (port, process):
        asyncio.run(soak(port, process, chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command")
    load_parser = commands.add_parser("load")
    load_parser.add_argument("--methods", nargs="+", default=METHODS)
    load_parser.add_argument("--streams", type=int, nargs="+", default=[1, 4, 16, 64, 256])
    load_parser.add_argument("--seconds", type=float, default=8)
    load_parser.add_argument("--engine", default="process", help="of dab serve")
    load_parser.set_defaults(measure=measure_load)
    soak_parser = commands.add_parser("soak")
    soak_parser.add_argument("--method", default=METHODS[-1])
    soak_parser.add_argument("--rate", type=float, default=60, help="images per second")
    soak_parser.add_argument("--minutes", type=float, default=60)
    soak_parser.add_argument("--cameras", type=int, default=32, help="that send at a time")
    soak_parser.add_argument("--streams", type=int, default=128, help="that take turns at them")
    soak_parser.add_argument("--stay", type=float, default=30, help="seconds until the next stream")
    soak_parser.set_defaults(measure=measure_soak)
    chosen = parser.parse_args(sys.argv[1:] or ["load"])
    chosen.measure(chosen)


if __name__ == "__main__":
    main()
