"""RoTTA: robust adaptation from a timely, certain, category-balanced memory (Yuan et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.augmentations import augment
from dab.buffers import Buffer, CSTUPolicy, ImageStorage, StorageKind
from dab.common import Training
from dab.methods.periodic import PeriodicAdapter
from dab.parts.batch_norm import Moments, RunningStatistics, batch_moments
from dab.parts.functional import cross_entropy, entropy
from dab.parts.layers import BatchNorm
from dab.parts.normalization import StatisticsKind
from dab.parts.options import Capacity, Count, Device, Range, Share
from dab.parts.teacher import Teacher
from dab.parts.transaction import AtEnd
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

    Its own kind of statistics for BatchNorm layers is "robust": running averages that follow the
    memory in updates.

    Args:
        model: any image classifier with normalization layers.
        capacity: M, the number of images in the memory.
        update_every: samples between two updates.
        teacher: how much of itself the teacher keeps in an update.
        alpha: how far the statistics of BatchNorm layers follow the memory in an update.
        storage: how the memory keeps images; see `dab.buffers.ImageStorage`.
        device: where the memory keeps images (default: the device of the first ones).
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "RoTTA"
    paper = "Yuan et al., Robust Test-Time Adaptation in Dynamic Scenarios, CVPR 2023"
    year = 2023
    color = 7
    forwards = 4.1
    passes = (3, 1)
    published = Training(optimizer="adam", lr=1e-3, statistics="robust")

    def __init__(
        self,
        model: nn.Module,
        *,
        capacity: Capacity = 64,
        update_every: Count = 64,
        teacher: Share = 0.999,
        alpha: Share = 0.05,
        storage: StorageKind = "auto",
        device: Device = None,
        **common: Unpack[Training[StatisticsKind | Literal["robust"]]],
    ) -> None:
        self._make_storage = partial(ImageStorage, capacity, storage, device)
        super().__init__(model, **common)  # type: ignore[arg-type]  # "robust" is its own
        self.capacity, self.update_every = capacity, update_every
        self.teacher, self.alpha = teacher, alpha
        self._statistics: RunningStatistics | None = None  # those in use; None: the source's
        self._statistics_follow = False

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

    def _normalized_by(self, statistics: RunningStatistics, follow: bool = False) -> AtEnd:
        self._statistics, self._statistics_follow = statistics, follow
        return AtEnd(self._normalized_by_source)

    def _normalized_by_source(self) -> None:
        self._statistics, self._statistics_follow = None, False

    def moments(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        """Robust batch normalization: mu <- (1 - alpha) mu + alpha mu_batch, variance likewise."""
        if self._statistics is None:
            return None
        batch = batch_moments(x) if self._statistics_follow else None
        if batch is None:
            return self._statistics[name]
        return self._statistics.follow(name, batch, self.alpha)
