"""CMF: ROID with a Kalman-like filter over the weights (Lee and Chang, 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dab.methods import roid
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.functional import uniform
from dab.parts.options import Momentum, Positive, Rate, Seed, Share
from dab.registry import register

__all__ = ["CMF"]

PAPER_SIZE = 38_400  # trained numbers of the ViT-B/16 that `noise` was chosen on
CERTAIN = 0.9999  # a gain above is taken for 1


@dataclass
class Memory(roid.Memory):
    """What CMF remembers of its stream."""

    hidden: list[Tensor]  # h: the filtered weights
    variance: float = 0.0  # v


@register("cmf")
class CMF(roid.ROID):
    """ROID whose weights follow a filtered state between the source and the adapted weights.

    Args:
        model: any image classifier with normalization layers.
        temperature: of the weights exp(w_div w_cert / temperature).
        alpha: how much of the hidden state is kept against the source in a prediction step.
        gamma: how much of the adapted weights is kept against the hidden state after an update.
        noise: q, the variance added per step, for 38,400 trained numbers and in proportion.
        least_gain: beta never falls below it.
        lr: learning rate of SGD with Nesterov momentum.
        momentum: of SGD.
        seed: of the augmentations.
        output: a correction of the answers, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "CMF"
    paper = "Lee and Chang, Continual Momentum Filtering on Parameter Space for Online Test-time "
    paper += "Adaptation, ICLR 2024"
    year = 2024
    forwards = 3.2

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: Positive = 1 / 3,
        alpha: Share = 0.99,
        gamma: Share = 0.99,
        noise: Positive = 0.005,
        least_gain: Share = 0.89,
        lr: Rate = 2.5e-4,
        momentum: Momentum = 0.9,
        seed: Seed = 0,
        output: OutputOption = "batch_prior",
        features: FeatureSource = None,
    ) -> None:
        super().__init__(
            model,
            temperature=temperature,
            lr=lr,
            momentum=momentum,
            seed=seed,
            output=output,
            features=features,
        )
        self.alpha, self.gamma, self.least_gain = alpha, gamma, least_gain
        self.noise = noise * sum(theta.numel() for theta in self.trained.source) / PAPER_SIZE

    def begin(self, classes: int) -> Memory:
        return Memory(uniform(classes), hidden=[theta.clone() for theta in self.trained.source])

    def regularize(self) -> None:
        """One step of the filter, then theta <- gamma theta + (1 - gamma) h."""
        memory: Memory = self.memory
        predicted = torch._foreach_lerp(memory.hidden, self.trained.source, 1 - self.alpha)
        variance = self.alpha**2 * memory.variance + self.noise
        trust = 1 - self.noise  # r
        beta = max(self.least_gain, trust / (variance + trust))
        beta = 1.0 if beta > CERTAIN else beta
        memory.variance = beta * variance
        memory.hidden = torch._foreach_lerp(predicted, self.trained.masters, 1 - beta)
        self.trained.pull(memory.hidden, self.gamma)
