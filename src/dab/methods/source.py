"""Source: the model as it is, the baseline that every method has to beat."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.options import Seed
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["Source"]


@register("source")
class Source(Adapter):
    """Predicts and never adapts.

    Args:
        model: any image classifier.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "Source"
    paper = "no adaptation"
    color = 0
    forwards = 1.0

    def __init__(
        self,
        model: nn.Module,
        *,
        statistics: StatisticsKind = "source",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        super().__init__(model, {}, partial(torch.optim.SGD), seed, output, features, statistics)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return logits
