"""Source: the model as it is, the baseline that every method has to beat."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.common import Common, Training
from dab.registry import register

__all__ = ["Source"]


@register("source")
class Source(Adapter):
    """Predicts and never adapts.

    Args:
        model: any image classifier.
        **common: options that methods share; see `dab.common.Common`.
    """

    title = "Source"
    paper = "no adaptation"
    color = 0
    forwards = 1.0
    passes = (1, 0)
    trains = "nothing"
    published = Training(statistics="source")

    def __init__(self, model: nn.Module, **common: Unpack[Common]) -> None:
        super().__init__(model, **common)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return logits
