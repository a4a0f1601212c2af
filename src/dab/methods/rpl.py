"""RPL: robust pseudo-labeling with the generalized cross-entropy (Rusak et al., 2022)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.functional import generalized_cross_entropy
from dab.parts.layers import norm_parameters
from dab.parts.optimizers import OptimizerKind, create_optimizer
from dab.parts.options import Momentum, NonNegative, Range, Rate, Seed
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["RPL"]


@register("rpl")
class RPL(Adapter):
    """Trains on its own predictions with a loss that is more robust to wrong labels.

    Args:
        model: any image classifier with normalization layers.
        q: exponent of the loss: near 0 it is the cross-entropy, at 1 the expected error.
        optimizer: "sgd" (with Nesterov momentum), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "RPL"
    paper = "Rusak et al., If Your Data Distribution Shifts, Use Self-Learning, TMLR 2022"
    year = 2022
    forwards = 2.2
    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        q: Annotated[float, Range(above=0, most=1)] = 0.8,
        optimizer: OptimizerKind = "sgd",
        lr: Rate = 5e-4,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        statistics: StatisticsKind = "batch",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        create = create_optimizer(optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(model, norm_parameters(model), create, seed, output, features, statistics)
        self.q = q

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            # L = mean_i (1 - y_ic^q) / q with c = argmax y_i
            loss = generalized_cross_entropy(logits, logits.argmax(dim=1), self.q).mean()
        self.learn(loss)
        return logits
