"""CoTTA's slow twin: written with loops, from the paper."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from dab.augmentations import augment
from dab.methods import CoTTA
from dab.parts.parameters import bernoulli
from tests.support.twins import SGD, close, move_toward, soft_cross_entropy, softmax


class SlowCoTTA:
    """Three copies of the net; the paper's constants are the defaults."""

    def __init__(
        self,
        model: nn.Module,
        augmentations: int = 32,
        gate: float = 0.1,
        teacher: float = 0.999,
        restore: float = 0.001,
        symmetric: bool = True,
        lr: float = 0.01,
        momentum: float = 0.9,
        seed: int = 0,
    ) -> None:
        self.student, self.teacher, self.anchor = (copy.deepcopy(model).eval() for _ in range(3))
        self.augmentations, self.gate, self.keep = augmentations, gate, teacher
        self.restore, self.symmetric = restore, symmetric
        self.optimizer = SGD(lr, momentum)
        self.generator = torch.Generator().manual_seed(seed)
        self.gated: list[bool] = []
        self.restored = 0
        self.loss = math.nan

    def __call__(self, images: Tensor) -> Tensor:
        n = len(images)
        confidence = sum(max(p.item() for p in softmax(z)) for z in self.anchor(images)) / n
        self.gated.append(confidence < self.gate)
        if self.gated[-1]:
            answer = torch.zeros_like(self.teacher(images))
            for _ in range(self.augmentations):
                answer += self.teacher(augment(images, self.generator)) / self.augmentations
        else:
            answer = self.teacher(images)
        answer = answer.detach()
        loss = torch.zeros((), dtype=torch.float64)
        for z_teacher, z_student in zip(answer, self.student(images), strict=True):
            if self.symmetric:
                both = soft_cross_entropy(z_teacher, z_student)
                both = both + soft_cross_entropy(z_student, z_teacher)
                loss = loss + both / 2 / n
            else:
                loss = loss + soft_cross_entropy(z_teacher, z_student) / n
        self.loss = loss.item()
        self.optimizer.step(list(self.student.parameters()), loss)
        move_toward(self.teacher, self.student, self.keep)
        self.restore_some()
        return answer

    @torch.no_grad()
    def restore_some(self) -> None:
        for theta, source in zip(self.student.parameters(), self.anchor.parameters(), strict=True):
            for position in bernoulli(theta.numel(), self.restore, self.generator).tolist():
                theta.view(-1)[position] = source.view(-1)[position]
                self.restored += 1


def compare(adapter: CoTTA, twin: SlowCoTTA, batches: list[Tensor]) -> None:
    assert adapter.trained.names == [name for name, _ in twin.student.named_parameters()]
    for images in batches:
        assert close(adapter(images), twin(images))
        assert adapter.last.updated
        assert adapter.last.loss == pytest.approx(twin.loss, abs=1e-9)
        assert adapter.model.state_dict().keys() == twin.student.state_dict().keys()
        for name, theta in twin.student.named_parameters():
            assert close(adapter.model.get_parameter(name), theta), name
        for name, theta in twin.teacher.named_parameters():
            assert close(adapter.memory.teacher.parameters[name], theta), name
    assert torch.equal(adapter.generator.get_state(), twin.generator.get_state())
