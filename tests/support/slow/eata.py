"""EATA's slow twin: written with loops, from the paper."""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import Tensor, nn

from tests.support.twins import (
    Twin,
    column_means,
    cosine,
    entropy,
    log_softmax,
    softmax,
)


class SlowEATA(Twin):
    def __init__(
        self,
        model: nn.Module,
        lr: float,
        margin: float,
        source_batches: list[Tensor],
        fisher_weight: float,
        entropy_below: float = 0.4,
    ) -> None:
        super().__init__(model, lr)
        self.entropy_below = entropy_below
        self.margin, self.fisher_weight = margin, fisher_weight
        self.q: list[float] | None = None
        self.fisher = {name: torch.zeros_like(p) for name, p in self.source.items()}
        for batch in source_batches:
            z = self.net(batch)
            losses = [-log_softmax(row)[int(row.argmax())] for row in z]
            for name, g in self.gradients(sum(losses) / len(losses)).items():
                self.fisher[name] = self.fisher[name] + g * g / len(source_batches)
        self.happened: Counter[str] = Counter()

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        y = [[p.item() for p in softmax(row)] for row in z]
        H = [entropy(row) for row in z]
        threshold = self.entropy_below * math.log(z.shape[1])
        reliable = [i for i in range(len(z)) if H[i] < threshold]
        chosen = [i for i in reliable if self.q is None or abs(cosine(self.q, y[i])) < self.margin]
        self.happened["S1 empty"] += not reliable
        self.happened["S1 smaller"] += 0 < len(reliable) < len(z)
        self.happened["S2 empty"] += not chosen and len(reliable) > 0
        self.happened["S2 smaller"] += 0 < len(chosen) < len(reliable)
        self.happened["q moved on"] += self.q is not None and len(chosen) > 0
        if not chosen:
            return z
        loss = sum(math.exp(threshold - H[i].item()) * H[i] for i in chosen) / len(chosen)
        for name, p in self.theta.items():
            loss = loss + self.fisher_weight * sum(
                f * (theta - theta_0) ** 2
                for f, theta, theta_0 in zip(self.fisher[name], p, self.source[name], strict=True)
            )
        self.descend(loss)
        seen = column_means([y[i] for i in chosen])
        self.q = (
            seen
            if self.q is None
            else [0.9 * a + 0.1 * b for a, b in zip(self.q, seen, strict=True)]
        )
        return z
