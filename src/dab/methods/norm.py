"""Norm: BatchNorm layers normalize with the statistics of the stream (Schneider et al., 2020)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from typing_extensions import Unpack

from dab.common import Common, Training
from dab.methods.source import Source
from dab.parts.batch_norm import Moments, mixed_moments
from dab.parts.layers import BatchNorm
from dab.parts.normalization import StatisticsKind
from dab.parts.options import Share
from dab.registry import register

__all__ = ["Norm"]


@register("norm")
class Norm(Source):
    """Replaces the statistics of BatchNorm layers, and trains nothing.

    Without BatchNorm layers, it is the source model. With the statistics of the "batch" it is also
    known as BN-1. Its own kind is "alpha": (1 - alpha) source + alpha batch.

    Args:
        model: any image classifier.
        alpha: weight of the batch in the statistics "alpha".
        **common: options that methods share; see `dab.common.Common`.
    """

    title = "Norm"
    paper = "Schneider et al., Improving robustness against common corruptions by covariate shift "
    paper += "adaptation, NeurIPS 2020"
    year = 2020
    forwards = 1.0
    passes = (1, 0)
    published = Training(statistics="batch")

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: Share = 0.1,
        **common: Unpack[Common[StatisticsKind | Literal["alpha"]]],
    ) -> None:
        super().__init__(model, **common)  # type: ignore[arg-type]  # "alpha" is its own
        self.alpha = alpha

    def moments(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        return mixed_moments(layer, x, self.alpha)
