"""TENT's slow twin: written with loops, from the paper."""

from __future__ import annotations

from torch import Tensor, nn

from tests.support.twins import (
    Twin,
    entropy,
    with_slow_statistics,
)


class SlowTENT(Twin):
    def __init__(self, model: nn.Module, lr: float, statistics: str = "batch") -> None:
        super().__init__(with_slow_statistics(model, statistics), lr)

    def step(self, images: Tensor) -> Tensor:
        z = self.net(images)
        self.descend(sum(entropy(row) for row in z) / len(z))
        return z
