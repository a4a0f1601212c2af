"""Which statistics BatchNorm layers normalize with: one option for all methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dab.parts.batch_norm import (
    Moments,
    RunningStatistics,
    batch_moments,
    renormalize,
    use_batch_statistics,
)
from dab.parts.layers import BatchNorm, batch_norms
from dab.parts.transaction import AtEnd

__all__ = ["Statistics", "StatisticsKind"]

StatisticsKind = Literal["source", "batch", "ema"]

# With "ema", a batch of n images has a weight of n / (n + RECENT). Chosen with DAB on a BatchNorm
# net and held-out corruptions; see docs/methods.md.
RECENT = 16


class Statistics(RunningStatistics):
    """The statistics that BatchNorm layers normalize with; their own buffers do not change.

    Args:
        model: the classifier. Without BatchNorm layers that track statistics, nothing changes.
        kind: "source" (the layers' own), of the "batch", or "ema": running averages over the
            stream that start at the source's. A prediction for n images first moves them by
            n / (n + 16), so that batches follow a new domain at once and single images work.
            Other forward passes use the same mixture without moving the averages. "train" is for
            methods that mark their training passes: as in torch's train mode, these use the
            batch's statistics and move running averages, which predictions are normalized with.
            Any other kind is a method's own: it computes them itself.
    """

    def __init__(self, model: nn.Module, kind: str) -> None:
        super().__init__(model if kind in ("ema", "train") else nn.Identity())
        self.kind = kind
        self.of_stream = kind != "source" and bool(batch_norms(model))
        self.of_batch = kind in ("batch", "train") and self.of_stream
        self._source = self._moments
        self._answering = self._training = self._moving = False

    def hooks(self, model: nn.Module, own: Callable[..., Moments | None]) -> list[RemovableHandle]:
        """Hooks that make the layers of a model use these statistics until they are removed.

        Args:
            model: the classifier.
            own: computes the moments of a kind that is a method's own; see `renormalize`.
        """
        if self.kind == "source":
            return []
        if self.kind == "batch":
            return use_batch_statistics(model)
        return renormalize(model, self._used if self.kind in ("ema", "train") else own)

    def reset(self) -> None:
        """Return to the source statistics."""
        self._moments = self._source

    def answering(self) -> AtEnd:
        """For a forward pass that predicts a batch of the stream."""
        self._answering = True
        return AtEnd(self._end_pass)

    def training(self, move: bool) -> AtEnd:
        """For a forward pass in train mode; `move` updates the averages, not for a second net."""
        self._training, self._moving = True, move
        return AtEnd(self._end_pass)

    def _end_pass(self) -> None:
        self._answering = self._training = self._moving = False

    def _used(self, name: str, layer: nn.Module, x: Tensor) -> Moments | None:
        batch = batch_moments(x)
        if batch is None:
            return self[name]
        if self.kind == "ema":
            share = len(x) / (len(x) + RECENT)
            weighed = self.follow if self._answering else self.toward
            return weighed(name, batch, share)
        if not self._training:
            return self[name]
        if self._moving:
            assert isinstance(layer, BatchNorm)
            mean, variance = (moment.detach() for moment in batch)
            values = x.numel() // x.shape[1]
            unbiased = variance * (values / (values - 1))  # like torch's running variance
            self.follow(name, (mean, unbiased), 0.1 if layer.momentum is None else layer.momentum)
        return batch
