"""Images per second and memory of a fleet: `python -m benchmarks.fleet`.

Each stream shows one image per step. Three ways take turns on the same images: the plain model on
all images at once, a fleet, and one adapter with a model of its own for each stream. Each number of
streams has its own process. Speeds are images per second of CPU time. Memory is what a stream adds
to the resident memory of the process once it has learned; for adapters it includes the network.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import dab
from benchmarks.step import TinyViT, batches
from dab.benchmark.running.memory import peak_mib, restart_peak

STREAMS = (1, 16, 64, 256)
# Single images need a running mean; a small buffer lets every stream learn within a few steps.
OPTIONS: dict[str, dict[str, Any]] = {
    "source": {"output": "markov"},
    "dab": {
        "capacity": 16,
        "batch_size": 16,
        "admission": "running",
        "filling": "adapt",
        "output": "markov",
        "guard": True,
    },
    "tent": {"output": "markov", "guard": True},
}


def measure(method: str, streams: int, steps: int, warm: int, pixels: int) -> dict[str, float]:
    """Measures one number of streams in this process."""
    torch.manual_seed(0)
    model = TinyViT(pixels).eval().requires_grad_(False)
    images = torch.cat(batches(-(-(steps + warm) * streams // 64), pixels))
    shown = images.split(streams)[: steps + warm]
    with torch.no_grad():  # an untrained net prefers few classes
        model.head.bias -= model(images[:64]).mean(dim=0)
    ids = [f"cam-{number}" for number in range(streams)]
    adapters: list[dab.Adapter] = []
    fleet = dab.Fleet(copy.deepcopy(model), method, **OPTIONS[method])

    @torch.no_grad()
    def plain(batch: Tensor) -> None:
        model(batch)

    def together(batch: Tensor) -> None:
        fleet(batch, ids)

    def each(batch: Tensor) -> None:
        for adapter, image in zip(adapters, batch.split(1), strict=True):
            adapter(image)

    ways: dict[str, Callable[[Tensor], None]] = {"plain": plain, "fleet": together}
    ways["adapters"] = each
    plain(shown[0])
    memory = {}
    for way in ("fleet", "adapters"):
        before = _resident()
        if way == "adapters":
            adapters += [dab.create(method, copy.deepcopy(model), **OPTIONS[method]) for _ in ids]
        for batch in shown[:warm]:
            ways[way](batch)
        memory[way] = (_resident() - before) / streams
    seconds = dict.fromkeys(ways, 0.0)
    for batch in shown[warm:]:
        for way, step in ways.items():
            start = time.process_time()
            step(batch)
            seconds[way] += time.process_time() - start
    updates = sum(fleet.stream(one).totals.updates for one in ids)
    assert updates == sum(adapter.totals.updates for adapter in adapters)
    count = streams * steps
    return {
        **{way: count / spent for way, spent in seconds.items()},
        **{f"{way} MiB": size for way, size in memory.items()},
        "own MiB": fleet.nbytes / streams / 2**20,
        "updates": updates / (streams * len(shown)),
    }


def _resident() -> float:
    restart_peak()
    return peak_mib()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=["source", "dab"], help="which to measure")
    parser.add_argument("--streams", type=int, nargs="*", default=STREAMS)
    parser.add_argument("--steps", type=int, default=8, help="at least; and at least 128 images")
    parser.add_argument("--warm", type=int, default=10, help="steps before those measured")
    parser.add_argument("--pixels", type=int, default=64)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    size = [chosen.steps, chosen.warm, chosen.pixels]
    if chosen.child:
        method, streams = chosen.child
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps(measure(method, int(streams), *size)))
        return
    print(f"ViT-Ti/16, images of {chosen.pixels} px, steps of one image per stream")
    print(
        f"{'method':<8} {'streams':>7} | {'plain':>7} {'fleet':>7} {'adapters':>8} images/s | "
        f"{'of plain':>8} {'x adapters':>10} | {'updates':>7} | MiB per stream"
    )
    for method in chosen.methods:
        for streams in chosen.streams:
            command = [sys.executable, "-m", "benchmarks.fleet", "--child", method, str(streams)]
            steps = max(chosen.steps, 128 // streams)
            command += ["--steps", str(steps), "--warm", str(chosen.warm)]
            command += ["--pixels", str(chosen.pixels)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            print(
                f"{method:<8} {streams:>7} | {found['plain']:>7.0f} {found['fleet']:>7.0f} "
                f"{found['adapters']:>8.0f}          | {found['fleet'] / found['plain']:>8.2f} "
                f"{found['fleet'] / found['adapters']:>10.2f} | {found['updates']:>7.3f} | "
                f"{found['fleet MiB']:.2f} ({found['own MiB']:.2f} its own), "
                f"adapters {found['adapters MiB']:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
