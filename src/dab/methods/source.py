"""Source: the model as it is, the line every method has to beat."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.outputs import Output
from dab.parts.features import FeatureSource
from dab.registry import register

__all__ = ["Source"]


@register("source")
class Source(Adapter):
    """Predicts and never adapts.

    Args:
        model: any image classifier.
        seed: unused, as nothing is random.
        output, features: a correction of what is answered; see `dab.outputs`.
    """

    title = "Source"
    paper = "no adaptation"
    forwards = 1.0

    def __init__(
        self,
        model: nn.Module,
        *,
        seed: int = 0,
        output: Output | str | None = None,
        features: FeatureSource = None,
    ) -> None:
        super().__init__(model, {}, partial(torch.optim.SGD), seed, output, features)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return logits
