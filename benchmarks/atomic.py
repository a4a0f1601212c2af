"""What it costs that calls are atomic: `python -m benchmarks.atomic`.

Every method adapts a ViT-Ti/16. The time spent on savepoints, on copies before changes and on
checks that weights are finite is measured where it is spent, as a share of all processor time in
calls, so that a busy machine does not blur it.
"""

from __future__ import annotations

import argparse
import functools
import time
import warnings
from typing import Any

import torch

import dab
from benchmarks.step import OPTIONS, TinyViT, batches
from dab.buffers import ImageStorage
from dab.parts.parameters import TrainedParameters
from dab.parts.transaction import Savepoint

PARTS = (
    (Savepoint, "__init__"),
    (Savepoint, "release"),
    (TrainedParameters, "_copy"),
    (TrainedParameters, "_is_finite"),
    (ImageStorage, "_record"),
)

spent = 0.0


def timed(function: Any) -> Any:
    @functools.wraps(function)
    def measure(*arguments: Any) -> Any:
        global spent
        began = time.process_time()
        result = function(*arguments)
        spent += time.process_time() - began
        return result

    return measure


def share(method: str, calls: int, pixels: int) -> tuple[float, float]:
    """The share of a method's calls that goes into being atomic, and seconds per call."""
    global spent
    torch.manual_seed(0)
    model = TinyViT(pixels).eval()
    stream = batches(calls + 4, pixels)
    with torch.no_grad():  # an untrained net has favorites: without them, many classes are seen
        model.head.bias -= model(stream[0]).mean(dim=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapter = dab.create(method, model, **OPTIONS.get(method, {}))
        for images in stream[:4]:
            adapter(images)
        began, spent = time.process_time(), 0.0
        for images in stream[4:]:
            adapter(images)
        seconds = time.process_time() - began
    return spent / seconds, seconds / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="only these (default: all)")
    parser.add_argument("--calls", type=int, default=6)
    parser.add_argument("--pixels", type=int, default=112)
    chosen = parser.parse_args()
    for cls, name in PARTS:
        setattr(cls, name, timed(getattr(cls, name)))
    print(f"{'method':<12} {'atomic':>8} {'s/call':>8}")
    for method in chosen.methods or dab.methods():
        atomic, seconds = share(method, chosen.calls, chosen.pixels)
        print(f"{method:<12} {atomic:>8.2%} {seconds:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
