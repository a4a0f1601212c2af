"""TENT against a twin written with loops."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.nets import CLASSES, SIZE, net, stream
from tests.support.slow.tent import SlowTENT
from tests.support.twins import (
    ATOL,
    CONTEXTS,
    assert_step_equal,
    logit_net,
    patches,
)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    twin, adapter = SlowTENT(model, lr=0.02), dab.create("tent", model, lr=0.02)
    for images in stream((8, 5, 1, 8, 3, 1, 8), dtype=torch.float64):
        assert_step_equal(adapter, twin, images, context)
        assert adapter.last.updated
    assert all((twin.theta[k] - before).abs().max() > 1e-3 for k, before in twin.source.items())


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.floats(1e-4, 0.5),
)
def test_any_step_equals_the_twin(seed, classes, sizes, lr):
    model = logit_net(classes, seed)
    twin, adapter = SlowTENT(model, lr), dab.create("tent", model, lr=lr)
    for images in patches(sizes, seed + 1):
        assert_step_equal(adapter, twin, images)


def test_batch_norm_uses_no_running_statistics_and_keeps_them():
    batches = stream()
    model, other = net("batchnorm"), net("batchnorm")
    for layer in other.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.add_(0.3)
            layer.running_var.mul_(1.7)
    other, model = other.double(), model.double()
    kept = deepcopy(dict(other.named_buffers()))
    a, b = dab.create("tent", model), dab.create("tent", other)
    for images in batches:
        torch.testing.assert_close(a(images.double()), b(images.double()), rtol=0, atol=ATOL)
    assert len(kept) == 6
    assert same(dict(other.named_buffers()), kept)
    # Given back, the model normalizes with its own statistics again.
    images = batches[0].double()
    assert not torch.allclose(a.detach().eval()(images), b.detach().eval()(images), atol=1e-3)


def test_a_batch_without_statistics_keeps_the_source_ones():
    """One sample behind a BatchNorm1d has no variance: not a NaN, and not all zeros."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(3 * SIZE * SIZE, 8),
        nn.BatchNorm1d(8),
        nn.Linear(8, CLASSES),
    )
    model(torch.cat(stream()))
    expected = deepcopy(model).eval()
    adapter = dab.create("tent", model)
    (image,) = stream((1,))
    torch.testing.assert_close(adapter(image), expected(image), rtol=0, atol=0)
    assert adapter.last.updated
    assert all(torch.isfinite(p).all() for p in model.parameters())


class Misnamed(nn.Module):
    """A norm called 'head', and a linear layer called 'norm'."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Linear(12, 12)
        self.head = nn.LayerNorm(12)
        self.bn1 = nn.Linear(12, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.bn1(self.head(self.norm(images.flatten(1))))


@pytest.mark.parametrize("method", ["tent", "eata", "sar", "roid"])
def test_layers_are_chosen_by_what_they_are_not_by_their_names(method):
    torch.manual_seed(0)
    adapter = dab.create(method, Misnamed())
    assert adapter.trained.names == ["head.weight", "head.bias"]
    trained = {name for name, p in adapter.model.named_parameters() if p.requires_grad}
    assert trained == {"head.weight", "head.bias"}
