"""ROID against a twin written with loops: the weights, both losses, the prior of the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dab
from tests.support.nets import net, stream
from tests.support.slow.roid import CorrectedROID, SlowROID, prior_corrected
from tests.support.twins import (
    CONTEXTS,
    assert_step_equal,
    logit_net,
    patches,
)


def assert_equal(adapter: dab.Adapter, twin: SlowROID, images: Tensor, *context: object) -> None:
    assert_step_equal(adapter, twin, images, *context)
    assert adapter.memory.tendency.tolist() == pytest.approx(twin.tendency, rel=0, abs=1e-9)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    twin = CorrectedROID(model, lr=1e-3, seed=3)
    adapter = dab.create("roid", model, lr=1e-3, seed=3)
    for images in stream((8, 5, 1, 8, 3, 2, 1, 8), dtype=torch.float64):
        assert_equal(adapter, twin, images, context)
        assert adapter.last.updated
    assert all(twin.happened.values()), twin.happened
    assert len(twin.happened) == 5
    assert all((twin.theta[k] - before).abs().max() > 1e-3 for k, before in twin.source.items())


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.floats(1 / 3, 2),
    st.floats(0, 1),
)
def test_any_step_equals_the_twin(seed, classes, sizes, temperature, ensemble):
    model = logit_net(classes, seed)
    # Weights scaled to [0, 1] over a saturated batch would be rounding errors, enlarged.
    model[-1].weight.data *= 0.3
    options = {"lr": 1e-3, "seed": seed, "temperature": temperature, "ensemble": ensemble}
    twin, adapter = SlowROID(model, **options), dab.create("roid", model, output=None, **options)
    for images in patches(sizes, seed + 1):
        assert_equal(adapter, twin, images)


def test_the_correction_does_not_change_what_is_learned():
    pure, corrected = (
        dab.create("roid", net("layernorm").double(), lr=0.01, output=output)
        for output in (None, "batch_prior")
    )
    for images in stream(dtype=torch.float64):
        z, answer = pure(images), corrected(images)
        torch.testing.assert_close(answer, prior_corrected(z), rtol=0, atol=1e-9)
        for a, b in zip(pure.trained.parameters, corrected.trained.parameters, strict=True):
            assert torch.equal(a, b)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(2, 7), st.sampled_from([1.0, 50.0]))
def test_the_prior_equals_the_twin(seed, n, classes, sharpness):
    rng = torch.Generator().manual_seed(seed)
    z = sharpness * torch.randn(n, classes, generator=rng, dtype=torch.float64)
    corrected = dab.outputs.create_output("batch_prior").correct(z, None)
    torch.testing.assert_close(corrected, prior_corrected(z), rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["roid", "dab"])
def test_batches_without_any_spread_do_not_end_in_nan(method):
    """Known fault of the original: min-max over one sample is 0/0, and the model is gone."""
    options = {"capacity": 1, "batch_size": 1} if method == "dab" else {}
    adapter = dab.create(method, net("layernorm"), **options)
    for image in torch.cat(stream()).split(1):
        assert torch.isfinite(adapter(image)).all()
    equal = stream((1,))[0].expand(4, -1, -1, -1)
    assert torch.isfinite(adapter(equal)).all()
    assert adapter.totals.updates > 5
    assert adapter.totals.skipped == 0
    assert all(torch.isfinite(p).all() for p in adapter.model.parameters())
    assert not all(map(torch.equal, adapter.trained.parameters, adapter.trained.source))
