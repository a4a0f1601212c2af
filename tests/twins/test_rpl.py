"""RPL against a twin written with loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from tests.support.nets import net, stream
from tests.support.twins import (
    CONTEXTS,
    Twin,
    argmax,
    assert_step_equal,
    logit_net,
    patches,
    softmax,
    with_slow_statistics,
)


class SlowRPL(Twin):
    def __init__(self, model: nn.Module, lr: float, q: float = 0.8) -> None:
        super().__init__(model, lr)
        self.q = q

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        losses = [(1 - softmax(row)[argmax(row)] ** self.q) / self.q for row in z]
        self.descend(sum(losses) / len(losses))
        return z


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    twin = SlowRPL(with_slow_statistics(model, "batch"), lr=0.02)
    adapter = dab.create("rpl", model, lr=0.02)
    for images in stream((8, 5, 1, 8, 3, 1, 8), dtype=torch.float64):
        assert_step_equal(adapter, twin, images, context)
        assert adapter.last.updated
    assert all((twin.theta[k] - before).abs().max() > 1e-4 for k, before in twin.source.items())


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.floats(0.01, 1),
)
def test_any_step_equals_the_twin(seed, classes, sizes, q):
    model = logit_net(classes, seed)
    twin, adapter = SlowRPL(model, 0.02, q), dab.create("rpl", model, lr=0.02, q=q)
    for images in patches(sizes, seed + 1):
        assert_step_equal(adapter, twin, images)


def test_options_are_checked():
    with pytest.raises(ValueError, match=r"q must be a number greater than 0 .*, got 0"):
        dab.create("rpl", net("layernorm"), q=0)
