"""CMF: ROID with a Kalman-like filter over the weights (Lee and Chang, 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn
from typing_extensions import Unpack

from dab.common import Training
from dab.methods.roid import ROID
from dab.methods.roid import Memory as ROIDMemory
from dab.parts.functional import uniform
from dab.parts.options import Positive, Range, Share
from dab.parts.teacher import Teacher
from dab.registry import register

__all__ = ["CMF"]

PAPER_SIZE = 38_400  # trained numbers of the ViT-B/16 that `noise` was chosen on
CERTAIN = 0.9999  # a beta above counts as 1


@dataclass
class Memory(ROIDMemory):
    """What CMF remembers of its stream."""

    hidden: Teacher  # h: the filtered weights
    variance: Annotated[float, Range(0)] = 0.0  # v


@register("cmf")
class CMF(ROID):
    """ROID whose weights are averaged with a filtered state between source and adapted weights.

    Args:
        model: any image classifier with normalization layers.
        temperature: of the weights exp(w_div w_cert / temperature).
        alpha: weight of the hidden state when averaged with the source before its correction.
        gamma: weight of the adapted parameters when averaged with the hidden state.
        noise: q, the variance added per update for 38,400 trained numbers; scaled by their number.
        least_kept: smallest beta, the weight of the hidden state in a correction.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "CMF"
    paper = "Lee and Chang, Continual Momentum Filtering on Parameter Space for Online Test-time "
    paper += "Adaptation, ICLR 2024"
    year = 2024
    forwards = 3.2
    passes = (2, 2)

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: Positive = 1 / 3,
        alpha: Share = 0.99,
        gamma: Share = 0.99,
        noise: Positive = 0.005,
        least_kept: Share = 0.89,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, temperature=temperature, **common)
        self.alpha, self.gamma, self.least_kept = alpha, gamma, least_kept
        self.noise = noise * sum(theta.numel() for theta in self.trained.source) / PAPER_SIZE

    def begin(self, classes: int) -> Memory:
        return Memory(uniform(classes), hidden=Teacher(self.trained))

    def regularize(self) -> None:
        """One step of the filter, then theta <- gamma theta + (1 - gamma) h."""
        memory: Memory = self.memory
        memory.hidden.follow(self.alpha, self.trained.source)  # p = alpha h + (1 - alpha) theta_0
        variance = self.alpha**2 * memory.variance + self.noise
        r = 1 - self.noise
        beta = max(self.least_kept, r / (variance + r))
        beta = 1.0 if beta > CERTAIN else beta
        memory.variance = beta * variance
        memory.hidden.follow(beta)  # h = beta p + (1 - beta) theta
        self.trained.ensemble(self.gamma, memory.hidden.values)
