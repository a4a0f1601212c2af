"""SAR: sharpness-aware and reliable entropy minimization (Niu et al., 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.functional import entropy
from dab.parts.layers import Layers, chosen_norm_parameters
from dab.parts.optimizers import OptimizerKind, create_optimizer
from dab.parts.options import Momentum, NonNegative, Rate, Seed
from dab.parts.parameters import total_norm
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["SAR"]


@dataclass
class Memory:
    """What SAR remembers of its stream."""

    mean_loss: float | None  # e: running mean of the second loss; None before the first


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
        optimizer: "sgd", "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "SAR"
    paper = "Niu et al., Towards Stable Test-Time Adaptation in Dynamic Wild World, ICLR 2023"
    year = 2023
    color = 8
    forwards = 4.9
    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        layers: Layers = "all",
        entropy_below: NonNegative = 0.4,
        rho: NonNegative = 0.05,
        reset_below: NonNegative = 0.2,
        optimizer: OptimizerKind = "sgd",
        lr: Rate = 1e-3,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        statistics: StatisticsKind = "batch",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        create = create_optimizer(
            optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=False
        )
        trained = chosen_norm_parameters(model, layers)
        super().__init__(model, trained, create, seed, output, features, statistics)
        self.entropy_below, self.rho, self.reset_below = entropy_below, rho, reset_below

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
