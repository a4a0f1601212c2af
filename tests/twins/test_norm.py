"""Norm against BatchNorm layers written with loops."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch

import dab
from dab.testing import same
from tests.support.nets import net, stream
from tests.support.twins import mixture, with_slow_statistics

SIZES = (8, 5, 1, 8, 3)


@pytest.mark.parametrize("kind", ["batch", "ema"])
def test_every_answer_equals_the_twin(kind):
    model = net("batchnorm").double().eval()
    twin = with_slow_statistics(model, kind)
    adapter = dab.create("norm", model, statistics=kind)
    for images in stream(SIZES, dtype=torch.float64):
        torch.testing.assert_close(adapter(images), twin(images), rtol=0, atol=1e-9)
    assert adapter.totals.updates == 0


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.7, 1.0])
def test_a_mixture_with_the_source_equals_the_twin(alpha):
    model = net("batchnorm").double().eval()
    twin = mixture(deepcopy(model), alpha)
    batches = stream(SIZES, dtype=torch.float64)
    expected = [twin(images) for images in batches]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with dab.create("norm", model, statistics="alpha", alpha=alpha) as adapter:
        for images, answer in zip(batches, expected, strict=True):
            torch.testing.assert_close(adapter(images), answer, rtol=0, atol=1e-9)
    assert same(dict(model.state_dict()), before)
    # The model is given back as it was.
    torch.testing.assert_close(
        model.eval()(batches[0]), net("batchnorm").double().eval()(batches[0])
    )


def test_the_batch_is_the_default_and_the_share_of_the_paper():
    images = stream()[0]
    default, batch, mixed, whole = (
        dab.create("norm", net("batchnorm"), **options)(images)
        for options in (
            {},
            {"statistics": "batch"},
            {"statistics": "alpha"},
            {"statistics": "alpha", "alpha": 0.1},
        )
    )
    assert torch.equal(default, batch)
    assert torch.equal(mixed, whole)
    assert not torch.allclose(default, mixed)


def test_without_batch_norm_it_is_the_source_model():
    model = net("layernorm")
    adapter = dab.create("norm", model)
    for images in stream():
        assert torch.equal(adapter(images), model(images))
