"""Which statistics BatchNorm layers normalize with: one choice, for any method."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dab.parts.batch_norm import (
    Moments,
    RunningStatistics,
    batch_moments,
    renormalize,
    source_moments,
    use_batch_statistics,
)
from dab.parts.layers import BatchNorm, batch_norms

__all__ = ["Statistics", "StatisticsKind"]

StatisticsKind = Literal["source", "batch", "mixed", "ema"]

# As many images as the source statistics count for among those of a batch, in "mixed".
SOURCE_IMAGES = 16


class Statistics(RunningStatistics):
    """The statistics that the BatchNorm layers of a model normalize with; the layers' own stay.

    Args:
        model: the classifier. Without BatchNorm layers that track statistics, nothing changes.
        kind: "source" (the layers' own), of the "batch", "mixed" (the batch's, and the source's
            as those of 16 more images), or "ema": running averages over the stream, which each
            answer moves first, by the layer's momentum. "train" is for methods that mark their
            training passes: as in torch's train mode, these use the batch's statistics and move
            the running averages, with which the answers are normalized.
    """

    def __init__(self, model: nn.Module, kind: StatisticsKind | Literal["train"]) -> None:
        super().__init__(model if kind in ("ema", "train") else nn.Identity())
        self.kind = kind
        self.of_batch = kind in ("batch", "train") and bool(batch_norms(model))
        self._source = self._moments
        self._answering = self._training = self._moving = False

    def hooks(self, model: nn.Module) -> list[RemovableHandle]:
        """Hooks that have the layers of a model use these statistics until they are removed."""
        if self.kind == "source":
            return []
        if self.kind == "batch":
            return use_batch_statistics(model)
        return renormalize(model, self._used)

    def reset(self) -> None:
        """Back to the source's."""
        self._moments = self._source

    @contextmanager
    def answering(self) -> Iterator[None]:
        """For a forward pass that answers a batch of the stream."""
        self._answering = True
        try:
            yield
        finally:
            self._answering = False

    @contextmanager
    def training(self, move: bool) -> Iterator[None]:
        """For a forward pass in train mode; a second net's must not move the averages."""
        self._training, self._moving = True, move
        try:
            yield
        finally:
            self._training = self._moving = False

    def _used(self, name: str, layer: nn.Module, x: Tensor) -> Moments | None:
        assert isinstance(layer, BatchNorm)
        batch = batch_moments(x)
        if self.kind == "mixed":
            return batch and _mixed(layer, batch, len(x))
        if self.kind == "ema":
            moves = self._answering and batch is not None
            return self.follow(name, batch, _momentum(layer)) if moves else self[name]
        if not self._training or batch is None:
            return self[name]
        if self._moving:
            mean, variance = batch
            values = x.numel() // x.shape[1]
            with torch.no_grad():  # torch's running variance is unbiased
                unbiased = variance * (values / (values - 1))
                self.follow(name, (mean, unbiased), _momentum(layer))
        return batch


def _mixed(layer: BatchNorm, batch: Moments, images: int) -> Moments:
    share = images / (images + SOURCE_IMAGES)
    mean, variance = (
        (1 - share) * own.to(seen) + share * seen
        for own, seen in zip(source_moments(layer), batch, strict=True)
    )
    return mean, variance


def _momentum(layer: BatchNorm) -> float:
    return 0.1 if layer.momentum is None else layer.momentum
