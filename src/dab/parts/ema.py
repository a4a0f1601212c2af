"""Means over a stream, sample by sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dab.parts.schema import Number, take
from dab.parts.transaction import Recorded

__all__ = ["RunningMean"]


class RunningMean(Recorded):
    """Mean of a sequence in which older values count less, by `decay` per value.

    >>> mean = RunningMean(decay=0.5)
    >>> mean.follow([3.0, 6.0])  # 3, then (0.5 * 3 + 6) / (0.5 + 1)
    [3.0, 5.0]
    """

    def __init__(self, decay: float = 0.99) -> None:
        self.decay = decay
        self._sum = self._weight = 0.0

    def follow(self, values: Iterable[float]) -> list[float]:
        """Add values one by one; returns the mean after each of them."""
        means = []
        for value in values:
            self._sum = self.decay * self._sum + value
            self._weight = self.decay * self._weight + 1
            means.append(self._sum / self._weight)
        return means

    def state_dict(self) -> dict[str, float]:
        return {"sum": self._sum, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        most = 1 / (1 - self.decay)  # the weight of a sequence without end
        total, weight = take(state, sum=Number(), weight=Number(0, most * (1 + 1e-9)))
        if total and not weight:
            raise ValueError(f"it has a sum of {total} over nothing")
        self._sum, self._weight = total, weight
