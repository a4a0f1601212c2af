"""A fleet against one adapter per stream, and its norm layers against loops over images."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.fleet.norms import Slot, Values, give_own_values
from dab.parts.layers import norm_parameters
from tests.support.adapters import REPRESENTATIVES
from tests.support.fleets import OPTIONS, Twins, pool
from tests.support.nets import OwnNorms, TinyViT, net

METHODS = [
    pytest.param(method, marks=() if method in REPRESENTATIVES else pytest.mark.slow)
    for method in OPTIONS
]

# Calls with up to ten images of up to four streams, in any order.
CALLS = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=10), min_size=4, max_size=8)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=4)
@given(
    calls=CALLS,
    kind=st.sampled_from(["layernorm", "groupnorm"]),
    images_per_pass=st.sampled_from([1, 5, 256]),
    seed=st.integers(0, 100),
)
def test_the_same_answers_and_decisions_as_one_adapter_per_stream(
    method, calls, kind, images_per_pass, seed
):
    options = {"images_per_pass": images_per_pass, **OPTIONS[method]}
    if dab.method(method).trains != "nothing":
        options |= {"guard": True, "lr": 0.02}
    if method in ("dab", "tent"):
        options["output"] = "markov"
    twins = Twins(net(kind).double(), method, 1e-9, **options)
    images = pool(seed, sum(map(len, calls)))
    for call, batch in zip(calls, images.split([len(call) for call in calls]), strict=True):
        twins.call(batch, call)
    twins.check()


@pytest.mark.parametrize("method", ["dab", "tent"])
def test_in_single_precision_too(method):
    twins = Twins(net("layernorm"), method, 1e-4, output="markov", **OPTIONS[method])
    images = pool(3, 120, torch.float32)
    for batch in images.split(12):
        twins.call(batch, list("aabcabcdcbaa"))
    twins.check()
    assert any(adapter.totals.updates > 2 for adapter in twins.adapters.values())


@pytest.mark.parametrize("method", ["dab", "sar"])
def test_on_other_norms(method):
    """One of somebody's own, and BatchNorm with the source's statistics."""
    for model in (OwnNorms().double(), net("batchnorm").double()):
        options = {**OPTIONS[method], "statistics": "source"}
        twins = Twins(model, method, 1e-9, **options)
        for batch in pool(1, 48).split(8):
            twins.call(batch, list("abcabcab"))
        twins.check()


def test_early_layers_alone():
    """SAR and DeYO leave out the late ones, which all images share."""
    model = TinyViT(6, blocks=4).double()
    twins = Twins(model, "sar", 1e-9, layers="early", entropy_below=2.0, lr=0.1)
    for batch in pool(1, 24).split(8):
        twins.call(batch, list("abcabcab"))
    assert twins.adapters["a"].totals.updates
    twins.check()


class ChannelsLast(nn.LayerNorm):
    """Normalizes the channels of (n, C, H, W), as in ConvNeXt."""

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias)
        return x.permute(0, 3, 1, 2)


class ScaleNorm(nn.Module):
    """A norm with a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x / x.norm(dim=-1, keepdim=True)


NORMS = {
    "layer": (nn.LayerNorm(6), (5, 6)),
    "layer without shift": (nn.LayerNorm(6, bias=False), (6,)),
    "layer of two dimensions": (nn.LayerNorm((5, 6)), (5, 6)),
    "group": (nn.GroupNorm(3, 6), (6, 4, 4)),
    "rms": (nn.RMSNorm(6), (5, 6)),
    "instance": (nn.InstanceNorm2d(6, affine=True), (6, 4, 4)),
    "instance with statistics": (
        nn.InstanceNorm2d(6, affine=True, track_running_stats=True).eval(),
        (6, 4, 4),
    ),
    "batch": (nn.BatchNorm2d(6).eval(), (6, 4, 4)),
    "a subclass": (ChannelsLast(6), (6, 4, 4)),
    "another one": (ScaleNorm(), (5, 6)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("rows", [1, 3])  # of the input for each image, as in windowed attention
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_every_image_is_scaled_by_its_own_values(name, rows, groups):
    layer, shape = copy.deepcopy(NORMS[name][0]).double(), NORMS[name][1]
    model = nn.Sequential(layer)
    torch.manual_seed(len(name) + rows + groups)
    trained = norm_parameters(model)
    stacks = {
        name: torch.randn(groups, *p.shape, dtype=torch.float64, requires_grad=True)
        for name, p in trained.items()
    }
    images = 6
    x = torch.randn(images * rows, *shape, dtype=torch.float64)

    outputs = []
    for image in range(images):  # the slow twin: each image alone, in a layer with its own values
        alone = copy.deepcopy(model)
        values = {n: stack[image // (images // groups)] for n, stack in stacks.items()}
        part = x[image * rows : (image + 1) * rows]
        outputs.append(torch.func.functional_call(alone, values, (part,)))
    expected = torch.cat(outputs)
    of_twin = torch.autograd.grad(expected.square().sum(), list(stacks.values()))

    slot = Slot()
    (own,) = give_own_values(model, trained, slot)
    slot.values = Values(images, groups, stacks)
    found = model(x)
    gradients = torch.autograd.grad(found.square().sum(), list(stacks.values()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for gradient, twin in zip(gradients, of_twin, strict=True):
        torch.testing.assert_close(gradient, twin, rtol=1e-10, atol=1e-10)

    slot.values = None
    assert torch.equal(model(x), NORMS[name][0].double()(x))
    own.remove()
    assert torch.equal(model(x), NORMS[name][0].double()(x))
