"""ROID: weighted likelihood ratio, consistency and a prior correction (Marsden et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.augmentations import mild
from dab.common import Training
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
from dab.parts.options import Positive, Share
from dab.parts.schema import Tendency
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
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "ROID"
    paper = "Marsden et al., Universal Test-time Adaptation through Weight Ensembling, Diversity "
    paper += "Weighting, and Prior Correction, WACV 2024"
    year = 2024
    color = 10
    forwards = 3.2
    passes = (2, 2)
    learns_from_prediction = True
    published = Training(output="batch_prior")

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: Positive = 1 / 3,
        ensemble: Share = 0.99,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, **common)
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
