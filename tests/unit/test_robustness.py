"""Odd models and odd moments: nothing crashes, nothing is half-changed."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.parts.layers import norm_layers, norm_parameters
from dab.testing import same
from tests.support.nets import TinyViT, net, stream


def flags(model: nn.Module) -> tuple[list[bool], list[bool], int]:
    hooks = sum(len(module._forward_pre_hooks) for module in model.modules())
    return (
        [module.training for module in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        hooks,
    )


@pytest.mark.parametrize("seed", [None, 1.5, 2**65])
def test_a_wrong_seed_leaves_the_model_as_it_was(seed):
    model = net("layernorm")
    before = flags(model)
    with pytest.raises((TypeError, RuntimeError, ValueError, OverflowError)):
        dab.DAB(model, seed=seed)
    assert flags(model) == before


def test_a_warning_that_is_an_error_leaves_the_adapter_as_it_was():
    adapter = dab.DAB(net("layernorm"), 8)
    adapter(stream()[0][:1])
    before = adapter.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="one sample"):
            adapter(stream()[1][:1])
    assert same(adapter.state_dict(), before)


@pytest.mark.parametrize("options", [{"capacity": 1e3}, {"batch_size": 8.0}])
def test_sizes_that_are_no_integers_fail_at_once(options):
    with pytest.raises(TypeError):
        dab.DAB(net("layernorm"), **options)


@pytest.mark.parametrize("theirs", ["outgoing", "incoming", "any"])
@pytest.mark.parametrize("ours", ["outgoing", "incoming", "any"])
def test_a_state_goes_on_under_another_trigger(theirs, ours):
    first = dab.DAB(net("layernorm"), 8, batch_size=8, trigger=theirs)
    for images in stream()[:5]:
        first(images)
    second = dab.DAB(net("layernorm"), 8, batch_size=8, trigger=ours)
    second.load_state_dict(first.state_dict(), allow_options=True)
    before = second.totals.updates
    for images in stream() * 2:
        second(images)
    assert second.totals.updates > before


def test_without_its_buffer_a_state_waits_until_it_is_full_again():
    first = dab.DAB(net("layernorm"), 8, batch_size=16)
    for images in stream()[:4]:
        first(images)
    second = dab.DAB(net("layernorm"), 8, batch_size=1, admission="running")
    second.load_state_dict(first.state_dict(buffer=False), allow_options=True)
    for image in torch.cat(stream()):
        second(image[None])
        assert second.last.fill == 8 or not second.last.updated
    assert second.last.fill == 8


def test_a_model_that_works_in_place_is_named_before_anything_is_stored():
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = net("layernorm")

        def forward(self, images: Tensor) -> Tensor:
            return self.model(images.sub_(0.5))

    adapter = dab.DAB(InPlace(), 8)
    before = adapter.state_dict()
    with pytest.raises(ValueError, match="in place"):
        adapter(stream()[0])
    assert same(adapter.state_dict(), before)


def test_norms_are_told_from_what_normalizes_pixels():
    class Normalize(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(3), requires_grad=False)
            self.std = nn.Parameter(torch.ones(3), requires_grad=False)

    class ScaleNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(1, 8, 1, 1))

    class PreNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.weight = nn.RMSNorm(4), nn.Parameter(torch.ones(4))

    model = nn.Sequential(Normalize(), ScaleNorm(), PreNorm(), nn.InstanceNorm2d(3, affine=True))
    assert list(norm_layers(model)) == ["1", "2.norm", "3"]
    assert list(norm_parameters(model)) == ["1.gamma", "2.norm.weight", "3.weight", "3.bias"]


def test_a_shared_norm_is_trained_once():
    norm = nn.LayerNorm(12)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 12), norm, nn.Linear(12, 12), norm)
    assert list(norm_parameters(model)) == ["2.weight", "2.bias"]


def test_parameters_replaced_after_wrapping_are_noticed():
    model = net("layernorm")
    adapter = dab.create("tent", model)
    fresh = {name: value.clone() for name, value in net("layernorm").state_dict().items()}
    model.load_state_dict(fresh, assign=True)
    model.requires_grad_(True)
    with pytest.raises(RuntimeError, match="replaced after it was wrapped"):
        adapter(stream()[0])


def test_a_model_that_is_cast_after_wrapping_goes_on():
    adapter, twin = dab.DAB(net("layernorm"), 8, batch_size=8), dab.DAB(net("layernorm"), 8)
    adapter.double()
    for images in stream(dtype=torch.float64):
        adapter(images)
    assert adapter.totals.updates > 0
    adapter.reset()
    source = twin.model.state_dict()
    assert all(torch.equal(v.float(), source[k]) for k, v in adapter.model.state_dict().items())


def test_adapters_pickle():
    adapter = dab.DAB(net("groupnorm"), 8, batch_size=8)
    for images in stream()[:5]:
        adapter(images)
    twin = pickle.loads(pickle.dumps(adapter))
    expected = [copy.deepcopy(adapter)(images) for images in stream()[5:6]]
    assert same([twin(images) for images in stream()[5:6]], expected)


NORM_ONLY = ["dab", "eata", "note", "roid", "rotta", "sar", "tent"]


@pytest.mark.slow
@pytest.mark.parametrize("method", NORM_ONLY)
def test_the_state_beside_the_buffer_stays_under_one_mib_for_a_vit_b(method):
    """No copy of 86 million parameters where 38,400 change."""

    def storages() -> dict[int, int]:
        gc.collect()
        tensors = [t for t in gc.get_objects() if type(t) in (Tensor, nn.Parameter)]
        return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TinyViT(1000, width=768, patch=16, blocks=12)
        nn.init.normal_(model.head.weight, std=1.0)  # certain enough for every method's filter
    batches = stream((8,) * 8, size=16)
    before = storages()
    options = {
        "dab": {"capacity": 8, "batch_size": 8, "trigger": "any"},
        "eata": {"margin": 2.0},
        "note": {"capacity": 8, "update_every": 16},
        "rotta": {"capacity": 8, "update_every": 16},
    }
    adapter = dab.create(method, model, **options.get(method, {}))
    for images in batches:
        adapter(images)
    assert adapter.totals.updates > 0
    buffer = getattr(adapter.memory, "buffer", getattr(adapter.memory, "memory", None))
    pixels = 0 if buffer is None else buffer.storage._stored.untyped_storage().nbytes()
    added = sum(n for pointer, n in storages().items() if pointer not in before) - pixels
    assert sum(p.numel() for p in adapter.trained.parameters) == 38_400
    assert 2 * 4 * 38_400 <= added < 2**20  # source and momentum at least


def test_a_vit_that_asserts_its_image_size_refuses_a_state_with_a_value_error():
    class Strict(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.model, self.size = net("layernorm"), size

        def forward(self, images: Tensor) -> Tensor:
            torch._assert(images.shape[-1] == self.size, f"wants {self.size} pixels")
            return self.model(images)

    small, large = dab.DAB(Strict(8), 8), dab.DAB(Strict(16), 8)
    small(stream()[0])
    with pytest.raises(ValueError, match="wants 16 pixels"):
        large.load_state_dict(small.state_dict())
