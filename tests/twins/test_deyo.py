"""DeYO against a twin written with loops: the shuffled patches, both filters, the weights."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.augmentations import shuffle_patches
from tests.support.libraries import torchvision_vit
from tests.support.nets import net, stream
from tests.support.twins import (
    CONTEXTS,
    Twin,
    argmax,
    assert_step_equal,
    entropy,
    logit_net,
    patches,
    softmax,
    with_slow_statistics,
)


def slow_shuffle(images: Tensor, per_side: int, generator: torch.Generator) -> Tensor:
    n, _, height, width = images.shape
    h, w = max(1, height // per_side), max(1, width // per_side)
    draws = torch.rand(n, per_side**2, generator=generator, dtype=torch.float64).tolist()
    resized = F.interpolate(images, (h * per_side, w * per_side), mode="bilinear")
    shuffled = torch.empty_like(resized)
    for i in range(n):
        order = sorted(range(per_side**2), key=draws[i].__getitem__)
        for place, source in enumerate(order):
            y, x = divmod(place, per_side)
            v, u = divmod(source, per_side)
            patch = resized[i, :, v * h : (v + 1) * h, u * w : (u + 1) * w]
            shuffled[i, :, y * h : (y + 1) * h, x * w : (x + 1) * w] = patch
    return F.interpolate(shuffled, (height, width), mode="bilinear")


class SlowDeYO(Twin):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        seed: int,
        entropy_below: float = 0.5,
        entropy_weight: float = 0.4,
        plpd_above: float = 0.2,
        patches: int = 4,
    ) -> None:
        super().__init__(model, lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.entropy_below, self.entropy_weight = entropy_below, entropy_weight
        self.plpd_above, self.patches = plpd_above, patches
        self.happened: Counter[str] = Counter()

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        most = math.log(z.shape[1])
        H = [entropy(row) for row in z]
        certain = [i for i in range(len(z)) if H[i] < self.entropy_below * most]
        self.happened["S1 empty"] += not certain
        self.happened["S1 smaller"] += 0 < len(certain) < len(z)
        if not certain:
            return z
        broken = self.net(slow_shuffle(images[certain], self.patches, self.generator))
        kept, loss = 0, 0
        for i, row in zip(certain, broken, strict=True):
            c = argmax(z[i])
            plpd = (softmax(z[i])[c] - softmax(row)[c]).item()
            if plpd > self.plpd_above:
                h = H[i].item()
                weight = 1 / math.exp(h - self.entropy_weight * most) + 1 / math.exp(-plpd)
                loss, kept = loss + weight * H[i], kept + 1
        self.happened["S2 empty"] += not kept
        self.happened["S2 smaller"] += 0 < kept < len(certain)
        if kept:
            self.descend(loss / kept)
        return z


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_step_equals_the_twin(kind, context):
    model = net(kind).double()
    options = {"lr": 0.02, "seed": 3, "entropy_below": 0.3, "plpd_above": 0.01}
    twin = SlowDeYO(with_slow_statistics(model, "batch"), **options)
    adapter = dab.create("deyo", model, layers="all", **options)
    for images in stream((8, 5, 1, 8, 1, 3, 1, 2, 1, 8), dtype=torch.float64):
        assert_step_equal(adapter, twin, images, context)
    assert adapter.totals.updates > 2
    assert twin.happened["S1 smaller"], twin.happened
    assert twin.happened["S2 smaller"], twin.happened


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.floats(0.1, 1),
    st.floats(-0.5, 0.5),
    st.integers(1, 3),
)
def test_any_step_equals_the_twin(seed, classes, sizes, entropy_below, plpd_above, grid):
    model = logit_net(classes, seed)
    options = {
        "lr": 0.02,
        "seed": seed,
        "entropy_below": entropy_below,
        "plpd_above": plpd_above,
        "patches": grid,
    }
    twin = SlowDeYO(model, **options)
    adapter = dab.create("deyo", model, layers="all", **options)
    for images in patches(sizes, seed + 1):
        assert_step_equal(adapter, twin, images)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 11), st.integers(1, 11), st.integers(1, 4))
def test_patches_are_shuffled_like_loops(seed, height, width, grid):
    rng = torch.Generator().manual_seed(seed)
    images = torch.rand(3, 2, height, width, generator=rng, dtype=torch.float64)
    found, expected = (
        shuffle(images, grid, torch.Generator().manual_seed(seed))
        for shuffle in (shuffle_patches, slow_shuffle)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_every_image_has_its_own_order_and_keeps_its_pixels():
    images = torch.arange(64.0).view(1, 1, 8, 8).expand(50, -1, -1, -1) / 64
    views = shuffle_patches(images, 4, torch.Generator().manual_seed(0))
    assert len(views.unique(dim=0)) == 50
    assert torch.equal(views.flatten(1).sort().values, images.flatten(1))


def test_early_layers_are_trained_unless_told_otherwise():
    names = dab.create("deyo", torchvision_vit()).trained.names
    assert "encoder.layers.encoder_layer_8.ln_2.weight" in names
    assert not any("encoder_layer_9" in name or "encoder.ln" in name for name in names)
    with pytest.raises(ValueError, match="use layers='all'"):
        dab.create("deyo", net("layernorm"))
