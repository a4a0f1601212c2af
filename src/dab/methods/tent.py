"""TENT: entropy minimization on every batch (Wang et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from dab.adapter import Adapter
from dab.parts.functional import entropy
from dab.registry import register

__all__ = ["TENT"]


@register("tent")
class TENT(Adapter):
    """Minimizes the mean entropy of each batch over the normalization parameters.

    Args:
        model: any image classifier with normalization layers.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "TENT"
    paper = "Wang et al., Tent: Fully Test-Time Adaptation by Entropy Minimization, ICLR 2021"
    year = 2021
    color = 1
    forwards = 2.2
    passes = (1, 1)
    learns_from_prediction = True

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = entropy(logits).mean()
        self.learn(loss)
        return logits
