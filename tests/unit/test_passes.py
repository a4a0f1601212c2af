"""No method makes more passes through the model than its paper needs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from torch import Tensor, nn

import dab
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


class Counter:
    """Counts the images that go through a model, forward and backward."""

    def __init__(self, model: nn.Module) -> None:
        self.forwards = self.backwards = 0
        model.register_forward_hook(self._forward)

    def _forward(self, model: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        self.forwards += len(logits)
        if logits.requires_grad:
            logits.register_hook(self._backward)

    def _backward(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)


@pytest.mark.parametrize("method", dab.methods())
def test_passes_are_those_of_the_paper(method):
    declared = dab.method(method).passes
    if declared is None:
        pytest.skip("registered by another test")
    model = net("layernorm")
    adapter = dab.create(method, model, **{**QUICK.get(method, {}), **BUSY.get(method, {})})
    first, *batches = stream((8,) * (3 if method == "memo" else 12))
    adapter(first)  # also finds the number of classes
    counter = Counter(model)
    for images in batches:
        adapter(images)
    samples = sum(map(len, batches))
    found = math.ceil(counter.forwards / samples), math.ceil(counter.backwards / samples)
    assert found == declared
