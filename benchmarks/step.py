"""Cost per call, as a multiple of a plain forward pass: `python -m benchmarks.step`.

Every method adapts the same ViT-Ti/16 on the same images, in its own process, so that its peak
memory can be measured. Calls alternate with plain forwards and with bare updates (forward, backward
to the norm parameters, optimizer step), so noise of the machine affects all of them equally. The
numbers are ratios of sums within one process.

The floor of a method that trains on its own batch (source, TENT) or out of a buffer (DAB) is
forward + u * (forward + backward) at its measured update rate u, in which TENT's forward is both.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dab
from dab.models.vit import Block
from dab.parts.layers import norm_parameters

BATCH = 64
CLASSES = 100
WITH_FLOOR = ("source", "tent", "dab")
OPTIONS = {"dab": {"capacity": 64}, "adacontrast": {"queue": 4096, "refine_after": 64}}
OPTIONS["memo"] = {"augmentations": 2}  # with 64, a call takes minutes


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


def timed(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def measure(method: str, calls: int, pixels: int) -> dict[str, float]:
    """Measures the cost of a method in this process."""
    torch.manual_seed(0)
    model = TinyViT(pixels).eval()
    stream = batches(calls + 4, pixels)
    plain = TinyViT(pixels).eval().requires_grad_(False)
    parameters = [p.requires_grad_() for p in norm_parameters(plain).values()]
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
    ):  # an untrained net prefers few classes; without that bias, many are predicted
        model.head.bias -= model(stream[0]).mean(dim=0)
    forward(stream[0]), update(stream[0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = dab.create(method, model, **OPTIONS.get(method, {}))
        for images in stream[:4]:  # fills buffers and queues
            adapter(images)
        forwards = bare_updates = due = calls_cost = 0.0
        warm = adapter.totals.updates
        for images in stream[4:]:
            forwards += timed(forward, images)
            cost = timed(update, images)
            bare_updates += cost
            calls_cost += timed(adapter, images)
            due += cost if adapter.last.updated else 0.0
    rate = (adapter.totals.updates - warm) / calls
    own_forward = 0.0 if method == "tent" else forwards  # TENT trains on the prediction itself
    floor = own_forward + due
    return {
        "multiple": calls_cost / forwards,
        "rate": rate,
        "update": bare_updates / forwards,
        "overhead": calls_cost / floor - 1 if method in WITH_FLOOR else float("nan"),
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


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
    print(f"{'method':<12} {'x forward':>10} {'updates':>8} {'over floor':>11} {'peak MiB':>9}")
    others = [name for name in dab.methods() if name not in WITH_FLOOR]
    for method in chosen.methods or [*WITH_FLOOR, *others]:
        size = ["--calls", str(chosen.calls), "--pixels", str(chosen.pixels)]
        command = [sys.executable, "-m", "benchmarks.step", "--child", method, *size]
        result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        overhead = "" if result["overhead"] != result["overhead"] else f"{result['overhead']:+.1%}"
        print(
            f"{method:<12} {result['multiple']:>9.2f}x {result['rate']:>8.2f} "
            f"{overhead:>11} {result['memory']:>9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
