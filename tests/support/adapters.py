"""Adapters of every method on tiny nets."""

from __future__ import annotations

from torch import nn

import dab
from tests.support.nets import CLASSES, net

# Options that let a method adapt within a stream of a few dozen images.
QUICK = {
    "adacontrast": {"queue": 32, "refine_after": 16},
    "cotta": {"augmentations": 3, "gate": 0.7},
    "dab": {"capacity": 8, "batch_size": 8},
    "eata": {"margin": 0.9},
    "note": {"capacity": 8, "update_every": 10},
    "rotta": {"capacity": 8, "update_every": 10},
}
UNTRAINED = {"source", "lame"}  # methods that change no weight

NETS = ["layernorm", "groupnorm", "batchnorm"]


def make(method: str, kind: str, *, classes: int = CLASSES, model: nn.Module | None = None, **more):
    model = net(kind, classes) if model is None else model
    return dab.create(method, model, **{**QUICK.get(method, {}), **more})


def run(adapter, batches):
    return [adapter(images) for images in batches]
