"""RoTTA: robust adaptation from a timely, certain, category-balanced memory (Yuan et al., 2023)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from dab.augmentations import augment
from dab.buffers import Buffer, CSTUPolicy, ImageStorage, StorageKind
from dab.methods.periodic import PeriodicAdapter
from dab.outputs import OutputOption
from dab.parts.batch_norm import Moments, RunningStatistics, batch_moments, renormalize
from dab.parts.features import FeatureSource
from dab.parts.functional import cross_entropy, entropy
from dab.parts.layers import norm_parameters
from dab.parts.optimizers import OptimizerKind, create_optimizer
from dab.parts.options import (
    Capacity,
    Count,
    Device,
    Momentum,
    NonNegative,
    Range,
    Rate,
    Seed,
    Share,
)
from dab.parts.statistics import StatisticsKind
from dab.parts.teacher import Teacher
from dab.registry import register

__all__ = ["RoTTA"]


@dataclass
class Memory:
    """What RoTTA remembers of its stream."""

    teacher: Teacher
    buffer: Buffer
    statistics: RunningStatistics  # of the student's BatchNorm layers
    teacher_statistics: RunningStatistics
    waiting: Annotated[int, Range(0)] = 0  # samples since the last update


@register("rotta")
class RoTTA(PeriodicAdapter):
    """Trains a student on views of a memory toward a teacher, which predicts.

    Args:
        model: any image classifier with normalization layers.
        capacity: M, the number of images in the memory.
        update_every: samples between two updates.
        teacher: how much of itself the teacher keeps in an update.
        alpha: how far the statistics of BatchNorm layers follow the memory in an update.
        optimizer: "sgd" (with Nesterov momentum), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        storage: how the memory keeps images; see `dab.buffers.ImageStorage`.
        device: where the memory keeps images (default: the device of the first ones).
        statistics: what BatchNorm layers normalize with: "robust" running averages that follow the
            memory in updates, or another kind; see `dab.parts.statistics`.
        seed: of the augmentations.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "RoTTA"
    paper = "Yuan et al., Robust Test-Time Adaptation in Dynamic Scenarios, CVPR 2023"
    year = 2023
    color = 7
    forwards = 3.0

    def __init__(
        self,
        model: nn.Module,
        *,
        capacity: Capacity = 64,
        update_every: Count = 64,
        teacher: Share = 0.999,
        alpha: Share = 0.05,
        optimizer: OptimizerKind = "adam",
        lr: Rate = 1e-3,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        storage: StorageKind = "auto",
        device: Device = None,
        statistics: Literal["robust"] | StatisticsKind = "robust",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        self._make_storage = partial(ImageStorage, capacity, storage, device)
        create = create_optimizer(optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay)
        shared: StatisticsKind = "source" if statistics == "robust" else statistics
        super().__init__(model, norm_parameters(model), create, seed, output, features, shared)
        self.capacity, self.update_every = capacity, update_every
        self.teacher, self.alpha = teacher, alpha
        self._statistics: RunningStatistics | None = None  # those in use; None: the source's
        self._statistics_follow = False
        if statistics == "robust":
            self.borrowed.until_end(renormalize(model, self._moments))

    def begin(self, classes: int) -> Memory:
        return Memory(
            teacher=Teacher(self.trained),
            buffer=Buffer(CSTUPolicy(self.capacity, classes), self._make_storage()),
            statistics=RunningStatistics(self.model),
            teacher_statistics=RunningStatistics(self.model),
        )

    def infer(self, images: Tensor) -> Tensor:
        """The teacher predicts; before the first batch it is the source model."""
        if self.memory is None:
            return self.run(images)
        with self._normalized_by(self.memory.teacher_statistics):
            return self.run(images, self.memory.teacher.parameters)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        labels = logits.argmax(dim=1).tolist()
        uncertainties = entropy(logits).tolist()
        self.remember(images, labels, uncertainties)
        return logits

    def update(self) -> None:
        memory: Memory = self.memory
        images = memory.buffer.read(torch.arange(len(memory.buffer)), self.trained.device)
        with self._normalized_by(memory.teacher_statistics, follow=True):
            targets = self.run(images, memory.teacher.parameters)
        view = augment(images, self.generator)
        policy = memory.buffer.policy
        assert isinstance(policy, CSTUPolicy)
        age = torch.tensor(policy.ages, dtype=torch.float64) / self.capacity
        timeliness = torch.sigmoid(-age).to(targets.device)  # exp(-A/M) / (1 + exp(-A/M))
        with torch.enable_grad(), self._normalized_by(memory.statistics, follow=True):
            losses = cross_entropy(targets, self.run(view))
            loss = (timeliness.to(losses) * losses).mean()
        if self.learn(loss):
            memory.teacher.follow(self.teacher)

    @contextmanager
    def _normalized_by(self, statistics: RunningStatistics, follow: bool = False) -> Iterator[None]:
        self._statistics, self._statistics_follow = statistics, follow
        try:
            yield
        finally:
            self._statistics, self._statistics_follow = None, False

    def _moments(self, name: str, layer: nn.Module, x: Tensor) -> Moments | None:
        """Robust batch normalization: mu <- (1 - alpha) mu + alpha mu_batch, variance likewise."""
        if self._statistics is None:
            return None
        batch = batch_moments(x) if self._statistics_follow else None
        if batch is None:
            return self._statistics[name]
        return self._statistics.follow(name, batch, self.alpha)
