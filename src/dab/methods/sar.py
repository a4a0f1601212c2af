"""SAR: sharpness-aware and reliable entropy minimization (Niu et al., 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.common import Training
from dab.parts.functional import entropy
from dab.parts.layers import Layers, chosen_norm_parameters
from dab.parts.options import NonNegative
from dab.parts.parameters import total_norm
from dab.registry import register

__all__ = ["SAR"]


@dataclass
class Memory:
    """What SAR remembers of its stream."""

    mean_loss: NonNegative | None  # e: running mean of the second loss; None before the first


@register("sar")
class SAR(Adapter):
    """Minimizes the entropy of certain samples at flat minima, and resets before a collapse.

    Args:
        model: any image classifier with normalization layers.
        layers: train "all" normalization layers, or only the "early" ones, without the last
            quarter of the blocks and the final norm (SAR's own paper).
        entropy_below: samples with a lower entropy count as certain; as a share of log C.
        rho: how far the weights are moved uphill before the gradient is computed.
        reset_below: the source weights are restored when the running loss falls below this.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "SAR"
    paper = "Niu et al., Towards Stable Test-Time Adaptation in Dynamic Wild World, ICLR 2023"
    year = 2023
    color = 8
    forwards = 4.9
    passes = (2, 2)
    learns_from_prediction = True
    nesterov = False
    published = Training(lr=1e-3)

    def __init__(
        self,
        model: nn.Module,
        *,
        layers: Layers = "all",
        entropy_below: NonNegative = 0.4,
        rho: NonNegative = 0.05,
        reset_below: NonNegative = 0.2,
        **common: Unpack[Training],
    ) -> None:
        self.layers = layers
        super().__init__(model, **common)
        self.entropy_below, self.rho, self.reset_below = entropy_below, rho, reset_below

    def trainable(self, model: nn.Module) -> Mapping[str, nn.Parameter]:
        return chosen_norm_parameters(model, self.layers)

    def begin(self, classes: int) -> Memory:
        return Memory(mean_loss=None)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        threshold = self.entropy_below * math.log(logits.shape[1])  # E_0
        with torch.enable_grad():
            entropies = entropy(logits)
            certain = entropies < threshold  # S1
            if not certain.any():
                self.last.reason = "no update: no sample is certain enough"
                return logits
            loss = entropies[certain].mean()
        uphill = self.trained.gradients(loss)
        if uphill is None:
            self.learn_from(loss, None)
            return logits
        distance = self.rho / (float(total_norm(uphill)) + 1e-12)
        with self.trained.moved(uphill, distance), torch.enable_grad():
            entropies = entropy(self.run(images))
            still_certain = certain & (entropies < threshold)  # S2
            if not still_certain.any():
                self.last.reason = "no update: no sample is certain enough uphill"
                return logits
            loss = entropies[still_certain].mean()
            gradients = self.trained.gradients(loss)
        if self.learn_from(loss, gradients):
            self._start_over_before_collapse(loss.item())
        return logits

    def _start_over_before_collapse(self, loss: float) -> None:
        memory: Memory = self.memory
        mean = loss if memory.mean_loss is None else 0.9 * memory.mean_loss + 0.1 * loss
        memory.mean_loss = mean
        if mean < self.reset_below:
            self.trained.restore()  # momentum included
            memory.mean_loss = None
