"""EATA against a twin written with loops: the Fisher term, both filters, the tendency."""

from __future__ import annotations

import io
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
)


def assert_equal(adapter: dab.Adapter, twin: SlowEATA, images: Tensor, *context: object) -> None:
    assert_step_equal(adapter, twin, images, *context)
    q = adapter.memory.tendency
    assert (q is None) == (twin.q is None)
    assert q is None or q.tolist() == pytest.approx(twin.q, rel=0, abs=1e-9)


def fisher_of(adapter: dab.Adapter) -> dict[str, Tensor]:
    return adapter.state_dict()["fisher"]


BRANCHES = {"S1 empty", "S1 smaller", "S2 empty", "S2 smaller", "q moved on"}
SIZES = (1, 8, 5, 1, 1, 8, 3, 1, 1, 2, 8, 1, 1, 1, 8, 1)
SEEDS = {"layernorm": 8, "groupnorm": 3}  # whose streams reach every branch


def less_certain(kind: str) -> nn.Module:
    model = net(kind).double()
    if kind == "groupnorm":
        model[-1].weight.data *= 0.5
    return model


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", SEEDS)
def test_every_step_equals_the_twin(kind, context):
    model = less_certain(kind)
    source = stream((13,), seed=99, dtype=torch.float64)[0]
    options = {"lr": 0.02, "margin": 0.6, "fisher_weight": 5.0}
    # Eleven of thirteen images, in batches of four: the last one is cut short.
    twin = SlowEATA(model, source_batches=[source[:4], source[4:8], source[8:11]], **options)
    with context():
        adapter = dab.create(
            "eata",
            model,
            source_images=source.clone(),
            fisher_images=11,
            batch_size=4,
            **options,
        )
    for images in stream(SIZES, SEEDS[kind], dtype=torch.float64):
        assert_equal(adapter, twin, images, context)
    fisher = fisher_of(adapter)
    assert fisher.keys() == twin.fisher.keys()
    for name, expected in twin.fisher.items():
        torch.testing.assert_close(fisher[name], expected, rtol=0, atol=1e-9)
        assert expected.max() > 1e-4
    assert {name for name, count in twin.happened.items() if count} >= BRANCHES, twin.happened


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.floats(0.05, 1),
    st.lists(st.integers(1, 3), max_size=2),
    st.sampled_from([0.2, 0.4, 0.9]),
)
def test_any_step_equals_the_twin(seed, classes, sizes, margin, source_sizes, entropy_below):
    model = logit_net(classes, seed)
    source = patches(source_sizes, seed + 2)
    options = {
        "lr": 0.02,
        "margin": margin,
        "fisher_weight": 2.0,
        "entropy_below": entropy_below,
    }
    twin = SlowEATA(model, source_batches=source, **options)
    adapter = dab.create("eata", model, source_images=source or None, **options)
    for images in patches(sizes, seed + 1):
        assert_equal(adapter, twin, images)


def test_the_fisher_term_holds_the_weights_back():
    def moved(**options: object) -> float:
        adapter = dab.create("eata", net("layernorm").double(), lr=2e-3, margin=0.9, **options)
        for images in stream(dtype=torch.float64):
            adapter(images)
        assert adapter.totals.updates > 3
        weights = zip(adapter.trained.parameters, adapter.trained.source, strict=True)
        return sum((p - source).square().sum().item() for p, source in weights)

    source = stream(seed=99, dtype=torch.float64)
    free, held = moved(), moved(source_images=source, fisher_weight=100.0)
    assert 0 < held < 0.5 * free
    assert moved(source_images=source, fisher_weight=0.0) == pytest.approx(free)


def test_source_images_come_in_any_of_these_forms():
    source = stream((4, 4, 3), seed=99)
    pairs = [(images, torch.zeros(len(images), dtype=torch.int64)) for images in source]
    forms = {
        "tensor": torch.cat(source),
        "list": source,
        "pairs": pairs,
        "lists of two": [list(pair) for pair in pairs],
        "generator": (images for images in source),
        "loader": torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.cat(source), torch.zeros(11)), batch_size=4
        ),
    }
    found = {}
    for form, images in forms.items():
        adapter = dab.create("eata", net("layernorm"), source_images=images, batch_size=4)
        adapter(stream()[0])
        found[form] = fisher_of(adapter)
    assert all(same(fisher, found["list"]) for fisher in found.values())
    other = dab.create("eata", net("layernorm"), source_images=forms["tensor"], batch_size=11)
    other(stream()[0])
    assert not same(fisher_of(other), found["list"])  # the mean is one over batches


def test_no_more_source_images_are_asked_for_than_are_used():
    asked = []

    def batches():
        for images in stream((4, 4, 4), seed=99):
            asked.append(len(images))
            yield images

    dab.create("eata", net("layernorm"), source_images=batches(), fisher_images=8)
    assert asked == [4, 4]


def test_without_source_images_it_runs_as_eta_and_says_so(caplog):
    model = net("layernorm").double()
    twin = SlowEATA(model, 0.02, 0.6, [], fisher_weight=2000.0)
    adapter = dab.create("eata", model, lr=0.02, margin=0.6)
    assert ["ETA" in record.message for record in caplog.records] == [True]
    for images in stream(SIZES, 8, dtype=torch.float64):
        assert_equal(adapter, twin, images)
    assert adapter.totals.updates > 2
    assert fisher_of(adapter) == {}
    assert len(caplog.records) == 1


def test_with_source_images_nothing_is_said(caplog):
    dab.create("eata", net("layernorm"), source_images=stream())
    assert not caplog.records


def through_a_file(state: dict[str, object]) -> dict[str, object]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("calls", [0, 5])
def test_the_fisher_term_survives_in_an_adapter_without_source_images(calls):
    """Also before the first call: Fisher once where the source is, adapt where it is not."""
    options = {"lr": 0.02, "margin": 0.9, "fisher_weight": 20.0}
    first = dab.create("eata", net("layernorm"), source_images=stream(seed=99), **options)
    for images in stream()[:calls]:
        first(images)
    second = dab.create("eata", net("layernorm"), **options)
    second.load_state_dict(through_a_file(first.state_dict()))
    for images in stream()[calls:]:
        assert torch.equal(first(images), second(images))
    assert same(first.state_dict(), second.state_dict())
    assert first.totals.updates > 2
    assert len(fisher_of(second)) == len(second.trained.names)


def test_reset_clears_the_tendency_and_keeps_the_fisher_term():
    """Known fault of the original: its tendency outlives a reset."""
    adapter = dab.create("eata", net("layernorm"), source_images=stream(seed=99), margin=0.9)
    adapter(stream()[0])
    first, fisher = adapter.memory.tendency, fisher_of(adapter)
    for images in stream():
        adapter(images)
    assert not torch.equal(adapter.memory.tendency, first)
    adapter.reset()
    adapter(stream()[0])
    assert torch.equal(adapter.memory.tendency, first)
    assert same(fisher_of(adapter), fisher)


class Exploding(torch.autograd.Function):
    """Identity whose gradient is infinite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


def spoilt_gradient(model: nn.Module) -> None:
    model.register_forward_hook(lambda _, __, logits: Exploding.apply(logits))


GOOD = stream((2,))[0]
BAD_SOURCES = {
    "source_images is empty": [],
    "the batch is empty": GOOD[:0],
    "NaN": [GOOD, GOOD * float("nan")],
    "floats": (GOOD * 255).int(),
    r"\(n, channels, height, width\)": [GOOD[0]],
}


@pytest.mark.parametrize("reason", BAD_SOURCES)
def test_bad_source_images_leave_the_model_untouched(reason):
    model = net("layernorm")
    model.dropout.eval()
    model.head.weight.requires_grad_(False)
    assert_refused(model, reason, BAD_SOURCES[reason])


def test_a_source_gradient_that_is_not_finite_is_refused():
    model = net("layernorm")
    spoilt_gradient(model)
    assert_refused(model, "source batch 0 .* not finite", [GOOD])


@pytest.mark.parametrize("fisher_images", [0, -1])
def test_a_number_of_source_images_that_is_none_is_refused(fisher_images):
    assert_refused(net("layernorm"), "fisher_images", [GOOD], fisher_images=fisher_images)


def assert_refused(model: nn.Module, reason: str, source: object, **options: object) -> None:
    def condition() -> object:
        return (
            deepcopy(dict(model.state_dict())),
            [m.training for m in model.modules()],
            [p.requires_grad for p in model.parameters()],
            [p.grad for p in model.parameters()],
            [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        )

    before = condition()
    with pytest.raises(ValueError, match=reason):
        dab.create("eata", model, source_images=source, **options)
    assert same(condition(), before)
