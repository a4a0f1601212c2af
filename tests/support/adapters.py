"""Adapters of every method on tiny nets."""

from __future__ import annotations

from typing import Any

import pytest

import dab
from dab.testing import NETS, Case

# Options that let a method adapt within a stream of a few dozen images.
QUICK: dict[str, dict[str, Any]] = {
    "adacontrast": {"queue": 32, "refine_after": 16},
    "cotta": {"augmentations": 3, "gate": 0.7},
    "dab": {"capacity": 8, "batch_size": 8},
    "sequence_dab": {"capacity": 8, "batch_size": 8},
    "deyo": {"layers": "all", "entropy_below": 0.9, "plpd_above": 0.01},
    "eata": {"margin": 0.9},
    "memo": {"augmentations": 3, "lr": 0.01},
    "note": {"capacity": 8, "update_every": 10},
    "rdumb": {"margin": 0.9, "reset_every": 4},
    "rotta": {"capacity": 8, "update_every": 10},
    "t3a": {"supports": 2},
}


# Every method, as a parameter of a test; `make quick` runs it with two of them.
REPRESENTATIVES = ("dab", "tent")
METHODS = [
    pytest.param(method, marks=() if method in REPRESENTATIVES else pytest.mark.slow)
    for method in dab.methods()
]


def quick(method: str, net: str) -> Case:
    return Case(method, QUICK.get(method, {}), net)


CASES = [quick(method, net) for net in NETS for method in dab.methods()]
