"""Norm: BatchNorm layers normalize with the statistics of the stream (Schneider et al., 2020)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from dab.methods.source import Source
from dab.outputs import OutputOption
from dab.parts.batch_norm import Moments, batch_moments, renormalize, source_moments
from dab.parts.features import FeatureSource
from dab.parts.layers import BatchNorm
from dab.parts.options import Seed, Share
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["Norm"]


@register("norm")
class Norm(Source):
    """Replaces the statistics of BatchNorm layers, and trains nothing.

    Without BatchNorm layers, it is the source model.

    Args:
        model: any image classifier.
        statistics: what BatchNorm layers normalize with: of the "batch" (also known as BN-1),
            "alpha" ((1 - alpha) source + alpha batch), "ema" (running averages over the stream),
            or another kind; see `dab.parts.statistics`.
        alpha: weight of the batch in "alpha".
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "Norm"
    paper = "Schneider et al., Improving robustness against common corruptions by covariate shift "
    paper += "adaptation, NeurIPS 2020"
    year = 2020
    forwards = 1.0

    def __init__(
        self,
        model: nn.Module,
        *,
        statistics: StatisticsKind | Literal["alpha"] = "batch",
        alpha: Share = 0.1,
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        shared: StatisticsKind = "source" if statistics == "alpha" else statistics
        super().__init__(model, statistics=shared, seed=seed, output=output, features=features)
        self.alpha = alpha
        if statistics == "alpha":
            self.borrowed.until_end(renormalize(model, self._mixed))

    def _mixed(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        batch = batch_moments(x)
        if batch is None:
            return None
        mean, variance = (
            own.to(seen).lerp(seen, self.alpha)
            for own, seen in zip(source_moments(layer), batch, strict=True)
        )
        return mean, variance
