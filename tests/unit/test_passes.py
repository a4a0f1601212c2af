"""No method makes more passes through the model than its paper needs."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dab
from dab.testing import PassCounter
from tests.support.adapters import QUICK
from tests.support.nets import net, stream

# Options with which every sample is trained on, as often as possible.
BUSY: dict[str, dict[str, Any]] = {
    "cotta": {"gate": 0.0},
    "deyo": {"entropy_below": 2.0, "plpd_above": -1.0},
    "eata": {"entropy_below": 2.0, "margin": 2.0},
    "memo": {"augmentations": 64},
    "note": {"update_every": 8},
    "rdumb": {"entropy_below": 2.0, "margin": 2.0},
    "rotta": {"update_every": 8},
    "sar": {"entropy_below": 2.0},
}


@pytest.mark.parametrize("method", dab.methods())
def test_passes_are_those_of_the_paper(method):
    declared = dab.method(method).passes
    if declared is None:
        pytest.skip("registered by another test")
    model = net("layernorm")
    adapter = dab.create(method, model, **{**QUICK.get(method, {}), **BUSY.get(method, {})})
    first, *batches = stream((8,) * (3 if method == "memo" else 12))
    adapter(first)  # also finds the number of classes
    counter = PassCounter(model)
    for images in batches:
        adapter(images)
    samples = sum(map(len, batches))
    found = math.ceil(counter.forwards / samples), math.ceil(counter.backwards / samples)
    assert found == declared
