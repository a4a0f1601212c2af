"""CMF against ROID's twin with a filter written for single numbers in place of the ensembling."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from tests.support.nets import net, stream
from tests.support.slow.roid import SlowROID, prior_corrected
from tests.support.twins import (
    CONTEXTS,
    assert_step_equal,
    logit_net,
    patches,
    with_slow_statistics,
)


class SlowCMF(SlowROID):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        seed: int,
        alpha: float = 0.99,
        gamma: float = 0.99,
        noise: float = 0.005,
        least_kept: float = 0.89,
    ) -> None:
        super().__init__(model, lr, seed)
        self.alpha, self.gamma, self.least_kept = alpha, gamma, least_kept
        self.noise = noise * sum(p.numel() for p in self.theta.values()) / 38_400
        self.hidden = {name: p.clone() for name, p in self.source.items()}
        self.variance = 0.0
        self.betas: list[float] = []

    def ensemble(self, keep: float) -> None:
        """What ROID does after a step."""
        q, r = self.noise, 1 - self.noise
        self.variance = self.alpha**2 * self.variance + q
        beta = r / (self.variance + r)
        beta = self.least_kept if beta < self.least_kept else beta
        beta = 1.0 if beta > 0.9999 else beta
        self.variance = beta * self.variance
        for name, theta in self.theta.items():
            h, theta_0 = self.hidden[name], self.source[name]
            for i in range(len(theta)):
                p = self.alpha * h[i] + (1 - self.alpha) * theta_0[i]
                h[i] = beta * p + (1 - beta) * theta.data[i]
                theta.data[i] = self.gamma * theta.data[i] + (1 - self.gamma) * h[i]
        self.betas.append(beta)


class CorrectedCMF(SlowCMF):
    def step(self, images: Tensor) -> Tensor:
        return prior_corrected(super().step(images))


def assert_equal(adapter: dab.Adapter, twin: SlowCMF, images: Tensor, *context: object) -> None:
    assert_step_equal(adapter, twin, images, *context)
    assert adapter.memory.variance == pytest.approx(twin.variance, rel=1e-9)
    for name, hidden in adapter.memory.hidden.state_dict().items():
        torch.testing.assert_close(hidden, twin.hidden[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    options = {"lr": 1e-3, "seed": 3, "noise": 5.0, "gamma": 0.9}
    twin = CorrectedCMF(with_slow_statistics(model, "batch"), **options)
    adapter = dab.create("cmf", model, **options)
    for images in stream((8, 5, 1, 8, 3, 2, 1, 8), dtype=torch.float64):
        assert_equal(adapter, twin, images, context)
        assert adapter.last.updated
    assert all((twin.theta[k] - before).abs().max() > 1e-3 for k, before in twin.source.items())


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([0.005, 50.0, 1000.0, 1e5]),
)
def test_any_step_equals_the_twin(seed, sizes, alpha, gamma, noise):
    model = logit_net(4, seed)
    model[-1].weight.data *= 0.3  # as in ROID's test
    options = {"lr": 1e-3, "seed": seed, "alpha": alpha, "gamma": gamma, "noise": noise}
    twin, adapter = SlowCMF(model, **options), dab.create("cmf", model, output=None, **options)
    for images in patches(sizes, seed + 1):
        assert_equal(adapter, twin, images)


@pytest.mark.parametrize(
    ("noise", "low", "high"), [(0.005, 1.0, 1.0), (50.0, 0.9, 0.9999), (1e5, 0.89, 0.89)]
)
def test_beta_is_clamped_below_and_rounded_to_one_above(noise, low, high):
    twin = SlowCMF(logit_net(3, 0), lr=1e-3, seed=0, noise=noise)
    for images in patches((4, 4), 0):
        twin(images)
    assert all(low <= beta <= high for beta in twin.betas)


def test_the_first_update_is_roids_with_what_the_filter_leaves():
    """A hidden state at the source and a beta of 1 make one update that of ROID."""
    cmf, roid = (dab.create(name, net("layernorm").double(), seed=1) for name in ("cmf", "roid"))
    images = stream(dtype=torch.float64)[0]
    assert torch.equal(cmf(images), roid(images))
    for a, b in zip(cmf.trained.parameters, roid.trained.parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
