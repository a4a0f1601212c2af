"""ROID: weighted likelihood ratio, consistency and a prior correction (Marsden et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.augmentations import mild
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.functional import (
    cross_entropy,
    diversity,
    entropy,
    follow,
    likelihood_ratio,
    min_max,
    probabilities,
    uniform,
)
from dab.parts.layers import norm_parameters
from dab.parts.optimizers import OptimizerKind, create_optimizer
from dab.parts.options import Momentum, NonNegative, Positive, Rate, Seed, Share
from dab.parts.schema import Tendency
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["ROID", "Memory"]


@dataclass
class Memory:
    """What ROID remembers of its stream."""

    tendency: Annotated[Tensor, Tendency()]


@register("roid")
class ROID(Adapter):
    """Trains on diverse, certain samples, and corrects its predictions with a prior of the batch.

    That correction exploits the label order, independently of how the weights adapt; `output=None`
    switches it off.

    Args:
        model: any image classifier with normalization layers.
        temperature: of the weights exp(w_div w_cert / temperature).
        ensemble: weight of the adapted parameters when averaged with the source after each update.
        optimizer: "sgd" (with Nesterov momentum), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: of the augmentations.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "ROID"
    paper = "Marsden et al., Universal Test-time Adaptation through Weight Ensembling, Diversity "
    paper += "Weighting, and Prior Correction, WACV 2024"
    year = 2024
    color = 10
    forwards = 3.2
    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: Positive = 1 / 3,
        ensemble: Share = 0.99,
        optimizer: OptimizerKind = "sgd",
        lr: Rate = 2.5e-4,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        statistics: StatisticsKind = "batch",
        seed: Seed = 0,
        output: OutputOption = "batch_prior",
        features: FeatureSource = None,
    ) -> None:
        create = create_optimizer(optimizer, lr=lr, momentum=momentum, weight_decay=weight_decay)
        super().__init__(model, norm_parameters(model), create, seed, output, features, statistics)
        self.temperature, self.ensemble = temperature, ensemble

    def begin(self, classes: int) -> Memory:
        return Memory(uniform(classes))

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        memory: Memory = self.memory
        y = probabilities(logits)
        w_div = min_max(diversity(y, memory.tendency))
        w_cert = min_max(-entropy(logits.detach()))
        kept = w_div >= w_div.mean()
        w = (w_div * w_cert / self.temperature).exp()[kept]
        with torch.enable_grad():
            view = self.run(mild(images[kept], self.generator))
            seen = logits[kept]
            consistency = (cross_entropy(seen, view) + cross_entropy(view, seen)) / 2
            loss = (w * (likelihood_ratio(seen) + consistency)).sum() / len(images)
        if self.learn(loss):
            memory.tendency = follow(memory.tendency, y)
            self.regularize()
        return logits

    def regularize(self) -> None:
        """Pull the weights back after an update: theta <- 0.99 theta + 0.01 theta_0."""
        self.trained.ensemble(self.ensemble)
