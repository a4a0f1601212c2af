"""ROID's slow twin: written with loops, from the paper."""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor, nn

from dab.augmentations import mild
from tests.support.twins import (
    Twin,
    column_means,
    cosine,
    entropy,
    log_softmax,
    softmax,
)


def scaled(values: list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(v - low) / (high - low) if high > low else 0.0 for v in values]


def prior_corrected(z: Tensor) -> Tensor:
    n, C = z.shape
    prior = column_means([[p.item() for p in softmax(row)] for row in z])
    s = max(1 / n, 1 / C) / max(prior)
    corrected = [[row[c].item() * (prior[c] + s) / (1 + s * C) for c in range(C)] for row in z]
    return torch.tensor(corrected, dtype=z.dtype)


class SlowROID(Twin):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        seed: int,
        temperature: float = 1 / 3,
        ensemble: float = 0.99,
    ) -> None:
        super().__init__(model, lr)
        self.generator = torch.Generator().manual_seed(seed)
        self.temperature, self.keep = temperature, ensemble
        self.tendency: list[float] = []
        self.happened: Counter[str] = Counter()

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        n, C = z.shape
        self.tendency = self.tendency or [1 / C] * C
        y = [[p.item() for p in softmax(row)] for row in z]
        w_div = scaled([1 - cosine(row, self.tendency) for row in y])
        w_cert = scaled([-entropy(row).item() for row in z])
        w = [
            math.exp(a * b / self.temperature) if a >= sum(w_div) / n else 0.0
            for a, b in zip(w_div, w_cert, strict=True)
        ]
        kept = [i for i in range(n) if w[i] > 0]
        views = self.net(mild(images[kept], self.generator))
        loss = 0
        for i, view in zip(kept, views, strict=True):
            loss = loss + w[i] * (self.likelihood_ratio(z[i]) + self.consistency(z[i], view)) / n
        self.descend(loss)
        self.ensemble(self.keep)
        self.tendency = [
            0.9 * old + 0.1 * new for old, new in zip(self.tendency, column_means(y), strict=True)
        ]
        self.happened["dropped"] += n - len(kept)
        self.happened["kept"] += len(kept)
        self.happened["alone"] += n == 1
        self.happened["clipped"] += sum(max(y[i]) > 0.99 for i in kept)
        self.happened["unclipped"] += sum(max(y[i]) < 0.99 for i in kept)
        return z

    def likelihood_ratio(self, row: Tensor) -> Tensor:
        total = 0
        for probability in softmax(row):
            p = probability if probability < 0.99 else torch.tensor(0.99, dtype=row.dtype)
            total = total - p * (p / (1 - p) + 1e-5).log()
        return total

    def consistency(self, a: Tensor, b: Tensor) -> Tensor:
        """Half of CE(a -> b) + CE(b -> a), with a gradient through both."""
        p, q, log_p, log_q = softmax(a), softmax(b), log_softmax(a), log_softmax(b)
        return -sum(p[c] * log_q[c] + q[c] * log_p[c] for c in range(len(a))) / 2


class CorrectedROID(SlowROID):
    """Learns from z, answers with z times the prior."""

    def step(self, images: Tensor) -> Tensor:
        return prior_corrected(super().step(images))
