"""AdaContrast's slow twin: written with loops, from the paper."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from dab.augmentations import strong, weak
from dab.methods import AdaContrast
from dab.parts.ring_buffer import RingBuffer
from tests.support.nets import TinyViT
from tests.support.twins import SGD, argmax, close, log_softmax, move_toward, softmax


def run(model: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits, and features (what the head sees) of unit length."""
    if isinstance(model, TinyViT):
        tokens = model.patches(images).flatten(2).transpose(1, 2)
        features, head = model.norm(model.blocks(tokens)).mean(dim=1), model.head
    else:
        features, head = model[:-1](images), model[-1]
    return head(features), [row / (row * row).sum().sqrt() for row in features]


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


class SlowAdaContrast:
    """Two copies of the net; queue and bank hold the newest entries last."""

    def __init__(
        self,
        model: nn.Module,
        temperature: float = 0.07,
        queue: int = 16384,
        teacher: float = 0.999,
        neighbors: int = 10,
        refine_after: int = 1024,
        crop: bool = False,
        lr: float = 2e-4,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        seed: int = 0,
    ) -> None:
        self.student, self.teacher = (copy.deepcopy(model).eval() for _ in range(2))
        self.temperature, self.capacity, self.keep = temperature, queue, teacher
        self.neighbors, self.refine_after = neighbors, refine_after
        self.crop = crop
        self.optimizer = SGD(lr, momentum, weight_decay)
        self.generator = torch.Generator().manual_seed(seed)
        self.queue: list[tuple[Tensor, int]] = []
        self.bank: list[tuple[Tensor, list[Tensor]]] = []
        self.seen = self.corrected = self.masked = self.negatives = 0
        self.loss = math.nan

    def __call__(self, images: Tensor) -> Tensor:
        w = weak(images, self.generator, self.crop)
        q = strong(images, self.generator, self.crop)
        k = strong(images, self.generator, self.crop)
        with torch.no_grad():
            logits, features = run(self.student, w)
            labels = [self.label(z, f) for z, f in zip(logits, features, strict=True)]
            move_toward(self.teacher, self.student, self.keep)
            _, keys = run(self.teacher, k)
        if not self.queue:
            self.queue = self.random_entries(len(keys[0]), len(logits[0]))
        loss = self.loss_of(q, keys, labels)
        self.loss = loss.item()
        self.optimizer.step(list(self.student.parameters()), loss)
        self.queue = (self.queue + list(zip(keys, labels, strict=True)))[-self.capacity :]
        with torch.no_grad():
            logits, features = run(self.teacher, w)
            entries = [(f, softmax(z)) for f, z in zip(features, logits, strict=True)]
            self.bank = (self.bank + entries)[-self.capacity :]
            self.seen += len(images)
            return self.student(images)

    def label(self, z: Tensor, feature: Tensor) -> int:
        if self.seen < self.refine_after or not self.bank:
            return argmax(z)
        by_cosine = sorted(self.bank, key=lambda entry: dot(entry[0], feature).item())
        nearest = by_cosine[-self.neighbors :]
        mean = [sum(p[c] for _, p in nearest) / len(nearest) for c in range(len(z))]
        self.corrected += argmax(mean) != argmax(z)
        return argmax(mean)

    def random_entries(self, width: int, classes: int) -> list[tuple[Tensor, int]]:
        shape = (self.capacity, width)
        noise = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        labels = torch.randint(classes, (self.capacity,), generator=self.generator).tolist()
        return [(row / dot(row, row).sqrt(), k) for row, k in zip(noise, labels, strict=True)]

    def loss_of(self, images: Tensor, keys: Sequence[Tensor], labels: Sequence[int]) -> Tensor:
        n = len(images)
        logits, queries = run(self.student, images)
        loss = torch.zeros((), dtype=torch.float64)
        for z, query, key, label in zip(logits, queries, keys, labels, strict=True):
            similarities = [dot(query, key)]
            for feature, its_label in self.queue:
                if its_label == label:
                    self.masked += 1
                else:
                    self.negatives += 1
                    similarities.append(dot(query, feature))
            found = log_softmax([s / self.temperature for s in similarities])[0]
            loss = loss - log_softmax(z)[label] / n - found / n
        predictions = [softmax(z) for z in logits]
        for c in range(logits.shape[1]):
            mean = sum(p[c] for p in predictions) / n
            loss = loss + mean * (mean + 1e-8).log()
        return loss


def in_order(ring: RingBuffer) -> list[Tensor]:
    """The rows of a ring from the oldest to the newest."""
    pushed = ring.state_dict()["pushed"]
    oldest = pushed % ring.capacity if pushed > ring.capacity else 0
    return [column.roll(-oldest, dims=0) for column in ring.columns]


def compare(adapter: AdaContrast, twin: SlowAdaContrast, batches: list[Tensor]) -> None:
    assert adapter.trained.names == [name for name, _ in twin.student.named_parameters()]
    for images in batches:
        assert close(adapter(images), twin(images))
        assert adapter.last.updated
        assert adapter.last.loss == pytest.approx(twin.loss, abs=1e-9)
        for name, theta in twin.student.named_parameters():
            assert close(adapter.model.get_parameter(name), theta), name
        for name, theta in twin.teacher.named_parameters():
            assert close(adapter.memory.teacher.parameters[name], theta), name
        features, labels = in_order(adapter.memory.queue)
        assert close(features, torch.stack([feature for feature, _ in twin.queue]))
        assert labels.tolist() == [label for _, label in twin.queue]
        features, probabilities = in_order(adapter.memory.bank)
        assert close(features, torch.stack([feature for feature, _ in twin.bank]))
        assert close(probabilities, torch.stack([torch.stack(p) for _, p in twin.bank]))
        assert adapter.memory.seen == twin.seen
    assert torch.equal(adapter.generator.get_state(), twin.generator.get_state())
