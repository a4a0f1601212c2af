"""RDumb against EATA's twin without a Fisher term, which is replaced by a fresh one."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.nets import net, stream
from tests.support.slow.eata import SlowEATA
from tests.support.twins import (
    CONTEXTS,
    assert_step_equal,
    logit_net,
    patches,
    with_slow_statistics,
)


class SlowRDumb(SlowEATA):
    def __init__(self, model: nn.Module, reset_every: int, **options: float) -> None:
        super().__init__(model, source_batches=[], fisher_weight=0.0, **options)
        self.reset_every, self.updates, self.resets = reset_every, 0, 0
        self.start = deepcopy(self.net.state_dict())

    def step(self, images: Tensor) -> Tensor:
        z = super().step(images)
        self.updates += self.updated
        if self.updates == self.reset_every:
            self.net.load_state_dict(self.start)
            self.velocity, self.q, self.updates = {}, None, 0
            self.resets += 1
        return z


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    options = {"lr": 0.02, "margin": 0.9, "reset_every": 2}
    twin = SlowRDumb(with_slow_statistics(model, "batch"), **options)
    adapter = dab.create("rdumb", model, **options)
    for images in stream((8, 5, 1, 8, 3, 2, 8, 8, 8, 4), dtype=torch.float64):
        assert_step_equal(adapter, twin, images, context)
        q = adapter.memory.tendency
        assert q is None if twin.q is None else q.tolist() == pytest.approx(twin.q, abs=1e-9)
        assert adapter.memory.updates == twin.updates
    assert twin.resets >= 2


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.floats(0.05, 1),
    st.integers(1, 4),
)
def test_any_step_equals_the_twin(seed, classes, sizes, margin, reset_every):
    model = logit_net(classes, seed)
    options = {"lr": 0.02, "margin": margin, "entropy_below": 0.8, "reset_every": reset_every}
    twin, adapter = SlowRDumb(model, **options), dab.create("rdumb", model, **options)
    for images in patches(sizes, seed + 1):
        assert_step_equal(adapter, twin, images)


def test_without_a_reset_it_is_eata_without_its_fisher_term():
    rdumb, eata = (
        dab.create(name, net("layernorm"), lr=0.02, margin=0.9) for name in ("rdumb", "eata")
    )
    for images in stream():
        assert torch.equal(rdumb(images), eata(images))
    assert rdumb.totals.updates > 3
    assert same(rdumb.state_dict()["weights"], eata.state_dict()["weights"])
