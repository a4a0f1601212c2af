"""Cost per image, counted and measured in plain forward passes: `python -m benchmarks.step`.

Every method adapts the same ViT-Ti/16 on the same images, in its own process, so that its peak
memory can be measured. Calls alternate with plain forwards and with bare updates (forward, backward
to what the method trains, optimizer step), so noise of the machine affects all of them equally. The
numbers are ratios of sums of CPU time within one process.

The counted cost is that of the passes the method made, each forward as a plain one and each
backward as that of a bare update. What is measured beyond it are views, losses and buffers.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dab
from dab.models.vit import Block
from dab.parts.layers import trained_parameters
from dab.testing import PassCounter

BATCH = 64
CLASSES = 100
OPTIONS: dict[str, dict[str, Any]] = {
    "dab": {"capacity": 64},
    "sequence_dab": {"capacity": 64},
    "adacontrast": {"queue": 4096, "refine_after": 64},
}


class TinyViT(nn.Module):
    """ViT-Ti/16: 12 blocks of width 192, three heads."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 192, 16, stride=16)
        self.position = nn.Parameter(torch.randn((pixels // 16) ** 2, 192) * 0.02)
        self.blocks = nn.Sequential(*(Block(192, 3, 768) for _ in range(12)))
        self.norm = nn.LayerNorm(192)
        self.head = nn.Linear(192, CLASSES)
        nn.init.normal_(self.head.weight, std=0.5)  # an untrained head has no confident predictions

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images - 0.5).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(dim=1))


def batches(count: int, pixels: int) -> list[Tensor]:
    """Returns 8-bit images of coarse colored patterns, different enough to tell apart."""
    coarse = torch.rand(count * BATCH, 3, 4, 4)
    images = F.interpolate(coarse, size=(pixels, pixels), mode="bilinear")
    return list(((images * 255).round() / 255).split(BATCH))


def timed(function: Callable[[Tensor], object], images: Tensor) -> float:
    start = time.process_time()
    function(images)
    return time.process_time() - start


def measure(method: str, calls: int, pixels: int) -> dict[str, float]:
    """Measures the cost of a method in this process."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = TinyViT(pixels).eval()
    stream = batches(calls + 4, pixels)
    plain = TinyViT(pixels).eval().requires_grad_(False)
    trains = dab.method(method).trains
    kind = "normalization layers" if trains == "nothing" else trains
    parameters = [p.requires_grad_() for p in trained_parameters(plain, kind).values()]
    optimizer = torch.optim.SGD(parameters, lr=1e-9, momentum=0.9, nesterov=True)

    @torch.no_grad()
    def forward(images: Tensor) -> None:
        plain(images)

    def update(images: Tensor) -> None:
        plain(images).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    with (
        torch.no_grad()
    ):  # an untrained net prefers few classes; without that bias, it predicts many
        model.head.bias -= model(stream[0]).mean(dim=0)
    forward(stream[0]), update(stream[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # MEMO sees one image as 64 views, so one image per call is a batch already.
    shown = 1 if dab.method(method).one_at_a_time else BATCH
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = dab.create(method, model, **OPTIONS.get(method, {}))
        for images in stream[:4]:  # fills buffers and queues
            adapter(images[:shown])
        passes = PassCounter(model)
        forwards = bare_updates = calls_cost = 0.0
        warm = adapter.totals.updates
        for images in stream[4:]:
            forwards += timed(forward, images)
            bare_updates += timed(update, images)
            calls_cost += timed(adapter, images[:shown])
    samples = calls * shown
    backward = bare_updates / forwards - 1
    return {
        "forwards": passes.forwards / samples,
        "backwards": passes.backwards / samples,
        "backward": backward,
        "counted": (passes.forwards + passes.backwards * backward) / samples,
        "measured": calls_cost / forwards * BATCH / shown,
        "rate": (adapter.totals.updates - warm) / calls,
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def in_own_process(method: str, calls: int, pixels: int) -> dict[str, float]:
    """`measure` in a new process, whose peak memory is the method's."""
    size = ["--calls", str(calls), "--pixels", str(pixels)]
    command = [sys.executable, "-m", "benchmarks.step", "--child", method, *size]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="only these (default: all)")
    parser.add_argument("--calls", type=int, default=12)
    parser.add_argument("--pixels", type=int, default=112)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(measure(chosen.child, chosen.calls, chosen.pixels)))
        return
    print(f"ViT-Ti/16, {BATCH} images of {chosen.pixels} px per call, {chosen.calls} calls")
    columns = ("forwards", "backwards", "counted", "measured", "updates", "peak MiB")
    print(f"{'method':<13}" + "".join(f"{column:>10}" for column in columns))
    for method in chosen.methods or dab.methods():
        found = in_own_process(method, chosen.calls, chosen.pixels)
        numbers = [found[name] for name in ("forwards", "backwards", "counted", "measured", "rate")]
        cells = [*(f"{number:>10.2f}" for number in numbers), f"{found['memory']:>10.0f}"]
        print(f"{method:<13}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
