"""NOTE against a reservoir of lists and BatchNorm written with loops over samples and channels."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dab.methods import NOTE
from dab.testing import same
from tests.support.buffers import SlowPBRS
from tests.support.nets import conv_net, net, stream
from tests.support.twins import (
    Adam,
    SlowBatchNorm,
    argmax,
    assert_same_statistics,
    balanced,
    close,
    slow_norms,
    softmax,
    trained,
)


class SlowIABN(SlowBatchNorm):
    """Instance-aware batch normalization, sample by sample and channel by channel."""

    def __init__(
        self, layer: nn.modules.batchnorm._BatchNorm, k: float, momentum: float, reached: set[str]
    ) -> None:
        super().__init__(layer)
        self.k, self.momentum, self.reached = k, momentum, reached

    def forward(self, x: Tensor) -> Tensor:
        if self.follows:
            self.follow(x.detach())
        rows = []
        for sample in x:
            channels = []
            for c, values in enumerate(sample):
                mean, variance = self.moments(c, values)
                normal = (values - mean) / (variance + self.eps).sqrt()
                channels.append(self.weight[c] * normal + self.bias[c])
            rows.append(torch.stack(channels))
        return torch.stack(rows)

    def follow(self, x: Tensor) -> None:
        for c in range(x.shape[1]):
            values = x[:, c]
            if values.numel() == 1:
                self.reached.add("one value a channel")
                return  # it has no variance to follow
            mean = values.sum() / values.numel()
            variance = ((values - mean) ** 2).sum() / values.numel()
            self.mean[c] = (1 - self.momentum) * self.mean[c] + self.momentum * mean
            self.variance[c] = (1 - self.momentum) * self.variance[c] + self.momentum * variance

    def moments(self, c: int, values: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance, L = self.mean[c], self.variance[c], values.numel()
        if L <= 1:
            self.reached.add("one pixel")
            return mean, variance
        own_mean = values.sum() / L
        own_variance = ((values - own_mean) ** 2).sum() / (L - 1)
        s_mu = math.sqrt((variance.item() + self.eps) / L)
        s_var = (variance.item() + self.eps) * math.sqrt(2 / (L - 1))
        mean = mean + self.softshrink("mean", own_mean - mean, self.k * s_mu)
        variance = variance + self.softshrink("variance", own_variance - variance, self.k * s_var)
        return mean, variance if variance > 0 else variance * 0

    def softshrink(self, what: str, difference: Tensor, threshold: float) -> Tensor:
        if difference >= threshold:
            self.reached.add(f"{what} above")
            return difference - threshold
        if difference <= -threshold:
            self.reached.add(f"{what} below")
            return difference + threshold
        self.reached.add(f"{what} within")
        return difference * 0


class SlowNOTE:
    """The net and its reservoir; the paper's constants are the defaults."""

    def __init__(
        self,
        model: nn.Module,
        classes: int,
        capacity: int = 64,
        update_every: int = 64,
        batch_size: int = 64,
        k: float = 4.0,
        bn_momentum: float = 0.01,
        lr: float = 1e-4,
        seed: int = 0,
    ) -> None:
        self.reached: set[str] = set()
        self.model = copy.deepcopy(model).eval()
        for name, layer in list(self.model.named_children()):
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                setattr(self.model, name, SlowIABN(layer, k, bn_momentum, self.reached))
        self.memory, self.images = SlowPBRS(capacity, classes, seed), {}
        self.generator = self.memory.generator  # of the reservoir and of the order of an epoch
        self.update_every, self.batch_size = update_every, batch_size
        self.optimizer = Adam(lr)
        self.seen = self.steps = 0
        self.loss: float | None = None

    def __call__(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            answer = torch.cat([self.model(x[None]) for x in images])
        for x, z in zip(images, answer, strict=True):
            label = argmax(z)
            placement = self.memory.place(label)
            if placement is None:
                self.reached.add("turned away")
            else:
                self.images[placement.slot] = x
                evicted = {None: "stored", label: "own class"}
                self.reached.add(evicted.get(placement.evicted, "largest class"))
            self.seen += 1
            if self.seen % self.update_every == 0:
                self.update()
        return answer

    def update(self) -> None:
        order = torch.randperm(len(self.memory.labels), generator=self.generator).tolist()
        while order:
            batch, order = order[: self.batch_size], order[self.batch_size :]
            self.step(torch.stack([self.images[slot] for slot in batch]))

    def step(self, images: Tensor) -> None:
        for norm in slow_norms(self.model).values():
            norm.follows = True
        logits = self.model(images)
        for norm in slow_norms(self.model).values():
            norm.follows = False
        terms = [-p * (p + 1e-6).log() for z in logits for p in softmax(z)]
        loss = sum(terms, torch.zeros((), dtype=torch.float64)) / len(terms)
        self.loss = loss.item()
        self.optimizer.step(trained(self.model), loss)
        self.steps += 1


def compare(adapter: NOTE, twin: SlowNOTE, batches: list[Tensor]) -> None:
    for images in batches:
        steps = twin.steps
        assert close(adapter(images), twin(images))
        updated = twin.steps > steps
        assert adapter.last.updated == updated
        assert adapter.last.loss == (pytest.approx(twin.loss, abs=1e-9) if updated else None)
        assert len(adapter.trained.names) == len(trained(twin.model))
        for name in adapter.trained.names:
            assert close(adapter.model.get_parameter(name), twin.model.get_parameter(name)), name
        assert_same_statistics(adapter.memory.statistics, twin.model)
        memory = adapter.memory.buffer
        assert memory.policy.labels == twin.memory.labels
        assert memory.policy.state_dict()["seen"].tolist() == twin.memory.n
        stored = memory.read(torch.arange(len(memory)))
        assert torch.equal(stored, torch.stack([twin.images[slot] for slot in range(len(memory))]))
        assert adapter.memory.waiting == twin.seen % twin.update_every
    assert torch.equal(adapter.generator.get_state(), twin.generator.get_state())


def net_with_a_norm_of_one_pixel() -> nn.Module:
    """The BatchNorm net with a third norm before its head, which sees one number a channel."""
    layers = list(net("batchnorm"))
    norm = nn.BatchNorm1d(8)
    generator = torch.Generator().manual_seed(0)
    norm.running_mean = torch.rand(8, generator=generator)
    norm.running_var = 0.2 + torch.rand(8, generator=generator)
    return nn.Sequential(*layers[:-1], norm, layers[-1])


def make(kind: str) -> nn.Module:
    return balanced(net_with_a_norm_of_one_pixel() if kind == "one pixel" else net(kind))


@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm", "one pixel"])
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    capacity=st.integers(1, 8),
    update_every=st.integers(3, 11),
    batch_size=st.integers(1, 9),
    k=st.sampled_from([0.0, 1.0, 4.0]),
    bn_momentum=st.sampled_from([0.0, 0.01, 0.5, 1.0]),
    lr=st.sampled_from([1e-4, 0.01]),
)
@example(seed=1, capacity=7, update_every=5, batch_size=3, k=1.0, bn_momentum=0.3, lr=0.02)
def test_every_call_equals_the_twin(kind, seed, **options):
    batches = stream((7, 1, 8, 1, 6), seed=seed, dtype=torch.float64)
    model = make(kind)
    adapter = NOTE(copy.deepcopy(model), seed=seed, **options)
    twin = SlowNOTE(model, classes=6, seed=seed, **options)
    compare(adapter, twin, batches)
    every, size = options["update_every"], options["batch_size"]
    held = [min(seen, options["capacity"]) for seen in range(every, 23 + 1, every)]
    assert twin.steps == sum(math.ceil(items / size) for items in held)


def test_every_branch_is_taken():
    options = {"capacity": 5, "update_every": 10, "batch_size": 2, "k": 2.0, "lr": 0.01}
    model = make("one pixel")
    twin = SlowNOTE(model, classes=6, **options)
    batches = stream((8, 1, 9, 12, 8), seed=2, dtype=torch.float64)
    batches[2] = batches[2].round()  # contrasts that the source never had
    compare(NOTE(model, **options), twin, batches)
    moments = {f"{of} {where}" for of in ("mean", "variance") for where in ("above", "below")}
    moments |= {"mean within", "variance within", "one pixel", "one value a channel"}
    assert twin.reached == moments | {"stored", "turned away", "own class", "largest class"}


def test_the_defaults_are_those_of_the_paper():
    model = make("batchnorm")
    twin = SlowNOTE(model, classes=6)
    compare(NOTE(model), twin, stream((50, 20), dtype=torch.float64))
    assert twin.steps == 1
    assert twin.reached > {"mean within", "mean above", "variance within"}


def test_an_answer_does_not_depend_on_the_rest_of_its_batch():
    model = make("batchnorm")
    images = torch.cat(stream((9, 9), dtype=torch.float64))
    together, alone = NOTE(copy.deepcopy(model)), NOTE(copy.deepcopy(model))
    assert close(together(images), torch.cat([alone(image[None]) for image in images]))


def test_statistics_move_in_updates_only_and_not_the_layers_own():
    model = make("batchnorm")
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    adapter = NOTE(model, update_every=10)
    first, second = stream((9, 1), dtype=torch.float64)
    adapter(first)
    before = adapter.memory.statistics.state_dict()
    for name, (mean, variance) in before.items():
        assert torch.equal(mean, buffers[f"{name}.running_mean"])
        assert torch.equal(variance, buffers[f"{name}.running_var"])
    adapter(second)
    after = adapter.memory.statistics.state_dict()
    assert not same(before, after)
    adapter.predict(first)
    assert same(after, adapter.memory.statistics.state_dict())
    assert same(buffers, dict(model.named_buffers()))


@pytest.mark.parametrize(
    "options", [{"update_every": 0}, {"batch_size": 0}, {"capacity": 0}, {"storage": "paper"}]
)
def test_refuses_wrong_options_before_it_touches_the_model(options):
    model = conv_net(nn.BatchNorm2d, classes=6)
    with pytest.raises(ValueError, match=next(iter(options))):
        NOTE(model, **options)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
