"""SAR against a twin written with loops: both passes, the running loss, starting over."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.libraries import HuggingFaceViT, timm_model, torchvision_vit
from tests.support.nets import net, stream
from tests.support.slow.sar import SlowSAR
from tests.support.twins import CONTEXTS, assert_step_equal, entropy, logit_net, patches


def assert_equal(adapter: dab.Adapter, twin: SlowSAR, images: Tensor, *context: object) -> None:
    assert_step_equal(adapter, twin, images, *context)
    e = adapter.memory.mean_loss
    assert (e is None) == (twin.e is None)
    assert twin.e is None or e == pytest.approx(twin.e, rel=0, abs=1e-9)


BRANCHES = {
    "S1 empty with momentum",
    "S1 smaller",
    "S2 empty with momentum",
    "S2 smaller",
    "e from before",
    "started over",
    "updated after starting over",
}
SIZES = (8, 5, 1, 1, 8, 3, 1, 1, 2, 8, 1, 1, 1, 8, 1)
# With these, the stream reaches every branch.
CASES = {
    "layernorm": (11, {"lr": 0.05, "rho": 1.0, "reset_below": 0.2}),
    "groupnorm": (5, {"lr": 0.05, "rho": 1.0, "reset_below": 0.3}),
}


def less_certain(kind: str) -> nn.Module:
    model = net(kind).double()
    if kind == "groupnorm":
        model[-1].weight.data *= 0.5
    return model


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", CASES)
def test_every_step_equals_the_twin(kind, context):
    seed, options = CASES[kind]
    model = less_certain(kind)
    twin, adapter = SlowSAR(model, **options), dab.create("sar", model, **options)
    for images in stream(SIZES, seed, dtype=torch.float64):
        assert_equal(adapter, twin, images, context)
    assert {name for name, count in twin.happened.items() if count} >= BRANCHES, twin.happened


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=6),
    st.floats(0, 2),
    st.floats(0, 0.5),
    st.sampled_from([0.2, 0.4, 0.9]),
)
def test_any_step_equals_the_twin(seed, classes, sizes, rho, reset_below, entropy_below):
    model = logit_net(classes, seed)
    options = {
        "lr": 0.05,
        "rho": rho,
        "reset_below": reset_below,
        "entropy_below": entropy_below,
    }
    twin, adapter = SlowSAR(model, **options), dab.create("sar", model, **options)
    for images in patches(sizes, seed + 1):
        assert_equal(adapter, twin, images)


def remembered(adapter: dab.Adapter) -> dict[str, dict[str, Tensor]]:
    return adapter.state_dict()["weights"]


@pytest.mark.parametrize("empty", ["S1", "S2"])
def test_without_certain_samples_momentum_moves_nothing(empty):
    """Known fault of the original: its optimizer steps with no gradient, but with momentum."""
    adapter = dab.create("sar", net("layernorm").double(), lr=0.05)
    batch = torch.cat(stream(dtype=torch.float64))
    adapter(batch)
    assert adapter.last.updated
    before, e = remembered(adapter), adapter.memory.mean_loss
    assert all(state["momentum_buffer"].abs().max() > 0 for state in before.values())
    entropies = torch.stack([entropy(row) for row in adapter.predict(batch)])
    threshold = 0.4 * math.log(6)
    if empty == "S1":
        adapter(batch[entropies >= threshold])
    else:  # the least certain of the certain ones, which a step uphill makes uncertain
        least = entropies[entropies < threshold].max()
        adapter(batch[entropies == least])
    assert not adapter.last.updated
    assert adapter.memory.mean_loss == e
    assert same(remembered(adapter), before)


def test_starting_over_clears_weights_running_loss_and_momentum():
    """Known fault of the original: the running loss stays, so that it starts over for ever."""
    adapter = dab.create("sar", net("layernorm"), lr=0.05, reset_below=0.2)
    source = remembered(adapter)
    certain, uncertain = torch.cat(stream()), stream()[2]
    entropies = torch.stack([entropy(row) for row in adapter.predict(certain)])
    certain = certain[entropies < 0.1]
    adapter(uncertain)
    assert not same(remembered(adapter), source)
    starts = 0
    while adapter.memory.mean_loss is not None:
        adapter(certain)
        starts += 1
        assert starts < 50
    assert starts > 1  # the running loss fell below, not the first one
    assert adapter.last.updated
    assert same(remembered(adapter), source)  # the source values, and no momentum at all
    fresh = dab.create("sar", net("layernorm"), lr=0.05, reset_below=0.2)
    assert torch.equal(adapter(uncertain), fresh(uncertain))
    assert same(remembered(adapter), remembered(fresh))
    assert adapter.memory == fresh.memory


def test_reset_clears_the_running_loss_and_momentum():
    adapter = dab.create("sar", net("layernorm"), lr=0.05, reset_below=0.0)
    source = remembered(adapter)
    for images in stream():
        adapter(images)
    assert adapter.memory.mean_loss != adapter.last.loss
    adapter.reset()
    assert same(remembered(adapter), source)
    adapter(stream()[0])
    assert adapter.memory.mean_loss == adapter.last.loss


def trained_norms(model: nn.Module, layers: str) -> set[str]:
    adapter = dab.create("sar", model, layers=layers)
    needed = {name for name, p in model.named_parameters() if p.requires_grad}
    assert needed == set(adapter.trained.names)
    names = {name.rpartition(".")[0] for name in needed}
    assert needed == {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    return names


VITS = {
    "timm": (
        lambda: timm_model("vit_tiny_patch16_224"),
        ["blocks.{}.norm1", "blocks.{}.norm2"],
        "norm",
    ),
    "torchvision": (
        torchvision_vit,
        ["encoder.layers.encoder_layer_{}.ln_1", "encoder.layers.encoder_layer_{}.ln_2"],
        "encoder.ln",
    ),
    "hugging face": (
        HuggingFaceViT,
        ["vit.encoder.layer.{}.layernorm_before", "vit.encoder.layer.{}.layernorm_after"],
        "vit.layernorm",
    ),
}


@pytest.mark.parametrize("library", VITS)
def test_early_layers_of_a_vit(library):
    make, norms, final = VITS[library]
    blocks = [{norm.format(i) for norm in norms} for i in range(12)]
    assert trained_norms(make(), "all") == set().union(*blocks, {final})
    assert trained_norms(make(), "early") == set().union(*blocks[:9])


@pytest.mark.parametrize(
    ("make", "head"), [(torchvision_vit, "heads.head"), (HuggingFaceViT, "classifier")]
)
def test_late_layers_stay_as_they_are(make, head):
    model = make()
    model.get_submodule(head).weight.data *= 20  # untrained heads are undecided
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapter = dab.create("sar", model, layers="early", lr=0.1, reset_below=0.0)
    for images in stream():
        adapter(images)
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == set(adapter.trained.names)
    assert len(moved) == 9 * 2 * 2


def test_early_layers_of_a_resnet():
    """Eight residual blocks: the two of the last stage are the last quarter."""
    model = timm_model("resnet18")
    every = {name for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)}
    early = {name for name in every if not name.startswith("layer4")}
    assert len(every) == 20
    assert trained_norms(model, "early") == early
    assert "layer3.1.bn2" in early
    assert "bn1" in early


def test_early_layers_need_blocks():
    model = net("groupnorm")
    with pytest.raises(ValueError, match=r"0 repeated blocks.*layers='all'"):
        dab.create("sar", model, layers="early")
    assert model.training
    with pytest.raises(ValueError, match="'all' or 'early'"):
        dab.create("sar", model, layers="late")
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
