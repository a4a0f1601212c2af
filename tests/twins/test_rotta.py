"""RoTTA against two nets, a memory of lists and BatchNorm written with loops; and its Teacher."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dab.augmentations import augment
from dab.methods import RoTTA
from dab.parts.layers import norm_parameters
from dab.parts.parameters import TrainedParameters
from dab.parts.teacher import Teacher
from dab.testing import same
from tests.support.buffers import SlowCSTU
from tests.support.nets import net, stream
from tests.support.twins import (
    Adam,
    SlowBatchNorm,
    argmax,
    assert_same_statistics,
    balanced,
    close,
    log_softmax,
    move_toward,
    slow_norms,
    soft_cross_entropy,
    trained,
)

KINDS = ["layernorm", "groupnorm", "batchnorm"]


class SlowRBN(SlowBatchNorm):
    """Robust batch normalization, channel by channel."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm, alpha: float) -> None:
        super().__init__(layer)
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        channels = []
        for c in range(x.shape[1]):
            values = x[:, c]
            mean, variance = self.mean[c], self.variance[c]
            if self.follows:
                batch_mean = values.sum() / values.numel()
                batch_variance = ((values - batch_mean) ** 2).sum() / values.numel()
                mean = (1 - self.alpha) * mean + self.alpha * batch_mean
                variance = (1 - self.alpha) * variance + self.alpha * batch_variance
                self.mean[c], self.variance[c] = mean.detach(), variance.detach()
            normal = (values - mean) / (variance + self.eps).sqrt()
            channels.append(self.weight[c] * normal + self.bias[c])
        return torch.stack(channels, dim=1)


def entropy(z: Sequence[Tensor]) -> float:
    return -sum(log_p.exp().item() * log_p.item() for log_p in log_softmax(z))


class SlowRoTTA:
    """Two copies of the net; the paper's constants are the defaults."""

    def __init__(
        self,
        model: nn.Module,
        classes: int,
        capacity: int = 64,
        update_every: int = 64,
        teacher: float = 0.999,
        alpha: float = 0.05,
        lr: float = 1e-3,
        seed: int = 0,
    ) -> None:
        slow = copy.deepcopy(model).eval()
        for name, layer in list(slow.named_children()):
            if isinstance(layer, nn.BatchNorm2d):
                setattr(slow, name, SlowRBN(layer, alpha))
        self.student, self.teacher = slow, copy.deepcopy(slow)
        self.memory, self.images = SlowCSTU(capacity, classes), {}
        self.update_every, self.keep = update_every, teacher
        self.optimizer = Adam(lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.seen = self.updates = 0
        self.reached: set[str] = set()  # branches of the memory
        self.loss: float | None = None

    def __call__(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            answer = self.teacher(images)
        for x, z in zip(images, answer, strict=True):
            label = argmax(z)
            placement = self.memory.place(label, entropy(z))
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
        items = self.memory.by_slot()
        images = torch.stack([self.images[item.slot] for item in items])
        self.follow(True)
        with torch.no_grad():
            targets = self.teacher(images)
        answers = self.student(augment(images, self.generator))
        self.follow(False)
        loss = torch.zeros((), dtype=torch.float64)
        for item, target, z in zip(items, targets, answers, strict=True):
            fading = math.exp(-item.age / self.memory.M)
            timeliness = fading / (1 + fading)
            loss = loss + timeliness * soft_cross_entropy(target, z) / len(items)
        self.loss = loss.item()
        self.optimizer.step(trained(self.student), loss)
        move_toward(self.teacher, self.student, self.keep)
        self.updates += 1

    def follow(self, follows: bool) -> None:
        for norm in [*slow_norms(self.student).values(), *slow_norms(self.teacher).values()]:
            norm.follows = follows


def compare(adapter: RoTTA, twin: SlowRoTTA, batches: list[Tensor]) -> None:
    for images in batches:
        updates, seen = twin.updates, twin.seen
        assert close(adapter(images), twin(images))
        updated = twin.updates > updates
        assert adapter.last.updated == updated
        assert adapter.last.loss == (pytest.approx(twin.loss, abs=1e-9) if updated else None)
        names = adapter.trained.names
        student, teacher = twin.student.get_parameter, twin.teacher.get_parameter
        assert len(names) == len(trained(twin.student))
        for name in names:
            assert close(adapter.model.get_parameter(name), student(name)), name
            assert close(adapter.memory.teacher.parameters[name], teacher(name)), name
        assert_same_statistics(adapter.memory.statistics, twin.student)
        assert_same_statistics(adapter.memory.teacher_statistics, twin.teacher)
        policy, items = adapter.memory.buffer.policy, twin.memory.by_slot()
        assert policy.labels == [item.label for item in items]
        assert policy.ages == [item.age for item in items]
        stored = adapter.memory.buffer.read(torch.arange(len(items)))
        assert torch.equal(stored, torch.stack([twin.images[item.slot] for item in items]))
        assert adapter.memory.waiting == twin.seen % twin.update_every
        assert twin.seen == seen + len(images)
    assert torch.equal(adapter.generator.get_state(), twin.generator.get_state())


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    capacity=st.integers(1, 12),
    update_every=st.integers(1, 9),
    teacher=st.sampled_from([0.0, 0.6, 0.999]),
    alpha=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    lr=st.sampled_from([1e-3, 0.02]),
)
@example(seed=1, capacity=7, update_every=5, teacher=0.8, alpha=0.3, lr=0.02)
def test_every_call_equals_the_twin(kind, seed, **options):
    batches = stream((7, 1, 8, 1, 4, 12), seed=seed, dtype=torch.float64)
    model = balanced(net(kind))
    adapter = RoTTA(copy.deepcopy(model), seed=seed, **options)
    twin = SlowRoTTA(model, classes=6, seed=seed, **options)
    compare(adapter, twin, batches)
    assert twin.updates == 33 // options["update_every"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_branch_of_the_memory_is_taken(kind):
    options = {"capacity": 3, "update_every": 10, "teacher": 0.9, "lr": 0.01}
    model = balanced(net(kind))
    twin = SlowRoTTA(model, classes=6, **options)
    compare(RoTTA(model, **options), twin, stream(seed=4, dtype=torch.float64))
    assert twin.reached == {"stored", "turned away", "own class", "largest class"}
    assert twin.updates == 6


def test_the_defaults_are_those_of_the_paper():
    model = balanced(net("batchnorm"))
    twin = SlowRoTTA(model, classes=6)
    compare(RoTTA(model), twin, stream((50, 50, 50), dtype=torch.float64))
    assert twin.updates == 2


def test_statistics_move_in_updates_only_and_not_the_layers_own():
    model = net("batchnorm").double()
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    adapter = RoTTA(model, update_every=10)
    first, second = stream((9, 1), dtype=torch.float64)
    adapter(first)
    before = adapter.memory.teacher_statistics.state_dict()
    assert same(before, adapter.memory.statistics.state_dict())
    for name, (mean, variance) in before.items():
        assert torch.equal(mean, buffers[f"{name}.running_mean"])
        assert torch.equal(variance, buffers[f"{name}.running_var"])
    adapter(second)
    assert not same(before, adapter.memory.teacher_statistics.state_dict())
    assert not same(before, adapter.memory.statistics.state_dict())
    assert same(buffers, dict(model.named_buffers()))


@pytest.mark.parametrize("options", [{"update_every": 0}, {"capacity": 0}, {"storage": "paper"}])
def test_refuses_wrong_options_before_it_touches_the_model(options):
    model = net("batchnorm")
    with pytest.raises(ValueError, match=next(iter(options))):
        RoTTA(model, **options)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def weights_of(model: nn.Module) -> TrainedParameters:
    return TrainedParameters(norm_parameters(model), lambda masters: torch.optim.SGD(masters, lr=1))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 2**31))
def test_a_teacher_follows_number_by_number(keeps, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = weights_of(net("layernorm").double())
    expected = [source.flatten().tolist() for source in weights.source]
    for master in weights.masters:
        master.data += 1.0  # a student that has gone ahead: the teacher starts at the source
    teacher = Teacher(weights)
    for keep in keeps:
        for values, master in zip(expected, weights.masters, strict=True):
            master.data = torch.randn(master.shape, generator=generator, dtype=torch.float64)
            for index, student in enumerate(master.flatten().tolist()):
                values[index] = keep * values[index] + (1 - keep) * student
        teacher.follow(keep)
        assert list(teacher.parameters) == weights.names
        for values, found in zip(expected, teacher.parameters.values(), strict=True):
            assert found.flatten().tolist() == pytest.approx(values, abs=1e-12)
    other = Teacher(weights)
    other.load_state_dict(teacher.state_dict())
    assert same(other.parameters, teacher.parameters)


def test_a_teacher_of_a_half_precision_model_follows_in_float32():
    weights = weights_of(net("layernorm").bfloat16())
    teacher = Teacher(weights)
    source = [value.clone() for value in teacher.state_dict().values()]
    for master in weights.masters:
        master.data += 1e-3
    for _ in range(100):
        teacher.follow(0.999)  # steps of 1e-6, far below the resolution of bfloat16
    moved = teacher.state_dict().values()
    for before, after in zip(source, moved, strict=True):
        assert torch.allclose(after - before, torch.tensor(1e-3 * (1 - 0.999**100)), atol=1e-6)
    assert {value.dtype for value in teacher.parameters.values()} == {torch.bfloat16}


def test_a_teacher_keeps_its_state_to_itself_and_refuses_another_shape():
    weights = weights_of(net("layernorm"))
    teacher = Teacher(weights)
    state = teacher.state_dict()
    for value in state.values():
        value += 1.0
    assert same(list(teacher.state_dict().values()), weights.source)
    name = weights.names[-1]
    with pytest.raises(ValueError, match=name):
        teacher.load_state_dict({**state, name: torch.zeros(3)})
