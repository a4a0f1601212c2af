"""NOTE: adaptation from a prediction-balanced reservoir (Gong et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.buffers import Buffer, ImageStorage, PBRSPolicy, StorageKind
from dab.common import Training
from dab.methods.periodic import PeriodicAdapter
from dab.parts.batch_norm import Moments, RunningStatistics, batch_moments
from dab.parts.layers import BatchNorm
from dab.parts.normalization import StatisticsKind
from dab.parts.options import Capacity, Count, Device, NonNegative, Range, Share
from dab.registry import register

__all__ = ["NOTE"]


@dataclass
class Memory:
    """What NOTE remembers of its stream."""

    buffer: Buffer
    statistics: RunningStatistics  # of BatchNorm layers
    waiting: Annotated[int, Range(0)] = 0  # samples since the last update


@register("note")
class NOTE(PeriodicAdapter):
    """Minimizes entropy on a reservoir of the stream that is balanced over predicted classes.

    Its own kind of statistics for BatchNorm layers is "instance": running averages that follow the
    memory in updates, corrected by each sample's own where they differ by more than chance.

    Args:
        model: any image classifier with normalization layers.
        capacity: M, the number of images in the memory.
        update_every: samples between two updates.
        batch_size: of the mini-batches in an update, one epoch over the memory.
        k: standard errors within which a sample's own statistics count as chance.
        bn_momentum: how far the statistics of BatchNorm layers follow a mini-batch.
        storage: how the memory keeps images; see `dab.buffers.ImageStorage`.
        device: where the memory keeps images (default: the device of the first ones).
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "NOTE"
    paper = "Gong et al., NOTE: Robust Continual Test-time Adaptation, NeurIPS 2022"
    year = 2022
    color = 6
    forwards = 3.7
    passes = (2, 1)
    published = Training(optimizer="adam", lr=1e-4, statistics="instance")

    def __init__(
        self,
        model: nn.Module,
        *,
        capacity: Capacity = 64,
        update_every: Count = 64,
        batch_size: Count = 64,
        k: NonNegative = 4.0,
        bn_momentum: Share = 0.01,
        storage: StorageKind = "auto",
        device: Device = None,
        **common: Unpack[Training[StatisticsKind | Literal["instance"]]],
    ) -> None:
        self._make_storage = partial(ImageStorage, capacity, storage, device)
        super().__init__(model, **common)  # type: ignore[arg-type]  # "instance" is its own
        self.capacity, self.update_every, self.batch_size = capacity, update_every, batch_size
        self.k, self.bn_momentum = k, bn_momentum
        self._source = RunningStatistics(model)
        self._statistics_follow = False

    def begin(self, classes: int) -> Memory:
        return Memory(
            buffer=Buffer(PBRSPolicy(self.capacity, classes, self.generator), self._make_storage()),
            statistics=RunningStatistics(self.model),
        )

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        labels = logits.argmax(dim=1).tolist()
        self.remember(images, labels)
        return logits

    def update(self) -> None:
        """One epoch over the shuffled memory: mean over batch and classes of -p log(p + 1e-6)."""
        memory: Memory = self.memory
        order = torch.randperm(len(memory.buffer), generator=self.generator)
        for slots in torch.split(order, self.batch_size):
            images = memory.buffer.read(slots, self.trained.device)
            self._statistics_follow = True
            try:
                with torch.enable_grad():
                    p = self.run(images).to(torch.promote_types(images.dtype, torch.float32))
                    p = p.softmax(dim=1)
                    loss = -(p * (p + 1e-6).log()).mean()
            finally:
                self._statistics_follow = False
            self.learn(loss)

    def moments(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        """Instance-aware batch normalization (IABN)."""
        statistics = self._source if self.memory is None else self.memory.statistics
        batch = batch_moments(x) if self._statistics_follow else None
        if batch is not None:
            with torch.no_grad():
                statistics.follow(name, batch, self.bn_momentum)
        mean, variance = (moment.to(x) for moment in statistics[name])
        pixels = math.prod(x.shape[2:])  # L
        if pixels <= 1:
            return mean, variance
        wide = variance + layer.eps
        own_variance, own_mean = torch.var_mean(x.flatten(2), dim=2, correction=1)
        mean_error = (wide / pixels).sqrt()
        variance_error = wide * math.sqrt(2 / (pixels - 1))
        return (
            mean + _beyond(own_mean - mean, self.k * mean_error),
            F.relu(variance + _beyond(own_variance - variance, self.k * variance_error)),
        )


def _beyond(difference: Tensor, chance: Tensor) -> Tensor:
    """Soft shrinkage with a threshold per channel: the part of a difference beyond chance."""
    # At the threshold too, so that nothing hangs on the last bit where chance is 0.
    return torch.where(difference.abs() >= chance, difference - difference.sign() * chance, 0.0)
