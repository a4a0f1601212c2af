"""TENT: entropy minimization on every batch (Wang et al., 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.functional import entropy
from dab.parts.layers import norm_parameters
from dab.parts.optimizers import OptimizerKind, create_optimizer
from dab.parts.options import Momentum, NonNegative, Rate, Seed
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["TENT"]


@register("tent")
class TENT(Adapter):
    """Minimizes the mean entropy of each batch over the normalization parameters.

    Args:
        model: any image classifier with normalization layers.
        optimizer: "sgd" (with Nesterov momentum), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "TENT"
    paper = "Wang et al., Tent: Fully Test-Time Adaptation by Entropy Minimization, ICLR 2021"
    year = 2021
    color = 1
    forwards = 2.2
    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: OptimizerKind = "sgd",
        lr: Rate = 2.5e-4,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        statistics: StatisticsKind = "batch",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        create = create_optimizer(optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(model, norm_parameters(model), create, seed, output, features, statistics)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = entropy(logits).mean()
        self.learn(loss)
        return logits
