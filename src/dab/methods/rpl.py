"""RPL: robust pseudo-labeling with the generalized cross-entropy (Rusak et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.common import Training
from dab.parts.functional import generalized_cross_entropy
from dab.parts.options import Range
from dab.registry import register

__all__ = ["RPL"]


@register("rpl")
class RPL(Adapter):
    """Trains on its own predictions with a loss that is more robust to wrong labels.

    Args:
        model: any image classifier with normalization layers.
        q: exponent of the loss: near 0 it is the cross-entropy, at 1 the expected error.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "RPL"
    paper = "Rusak et al., If Your Data Distribution Shifts, Use Self-Learning, TMLR 2022"
    year = 2022
    forwards = 2.2
    passes = (1, 1)
    learns_from_prediction = True
    published = Training(lr=5e-4)

    def __init__(
        self,
        model: nn.Module,
        *,
        q: Annotated[float, Range(above=0, most=1)] = 0.8,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, **common)
        self.q = q

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            # L = mean_i (1 - y_ic^q) / q with c = argmax y_i
            loss = generalized_cross_entropy(logits, logits.argmax(dim=1), self.q).mean()
        self.learn(loss)
        return logits
