"""LAME's correction: similar samples get similar labels."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.outputs.output import Output, register_output
from dab.parts.functional import probabilities
from dab.parts.options import Count, NonNegative

__all__ = ["Affinity", "Laplacian"]

Affinity = Literal["knn", "rbf", "linear"]


@register_output("lame")
class Laplacian(Output):
    """Laplacian-adjusted maximum likelihood over the samples of a batch (Boudiaf et al., 2022).

    Assumes that near neighbors in feature space within a batch share a class. That holds if a batch
    has few classes, as on a sorted stream. On a shuffled stream of many classes, most neighbors
    belong to another class, and it fails badly.

    Args:
        neighbors: k of the affinity.
        affinity: how alike two samples with unit features are. "knn" counts whether each is among
            the k nearest of the other (LAME's paper). "rbf" is exp(-d^2 / 2 s^2) of their distance
            d, where s is the mean distance of a sample to its k-th nearest, itself counted.
            "linear" is their inner product.
        rounds: iterations of the fixed point, at most.
        tolerance: stop when the energy changes by less.
    """

    needs_features = True

    def __init__(
        self,
        neighbors: Count = 5,
        affinity: Affinity = "knn",
        rounds: Count = 100,
        tolerance: NonNegative = 1e-8,
    ) -> None:
        self.neighbors, self.kind = neighbors, affinity
        self.rounds, self.tolerance = rounds, tolerance

    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        assert features is not None
        # The smallest number stands in for a probability that has underflowed: log 0 is infinite.
        y = probabilities(logits)
        log_p = y.clamp_min(torch.finfo(y.dtype).tiny).log()
        affinity = self.affinity(features).to(log_p)
        q = log_p.softmax(dim=1)
        energy = float("inf")
        for _ in range(self.rounds):
            pairwise = affinity @ q
            # The fixed point q <- softmax(log p + W q).
            q = (log_p + pairwise).softmax(dim=1)
            log_q = q.clamp_min(torch.finfo(q.dtype).tiny).log()
            previous, energy = energy, float((q * (log_q - log_p - pairwise)).sum())
            if abs(previous - energy) < self.tolerance:
                break
        return log_q.to(logits.dtype)

    def affinity(self, features: Tensor) -> Tensor:
        """W: how alike the samples are, in pairs."""
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        unit = F.normalize(wide, dim=1)
        if self.kind == "rbf":
            return self._rbf(unit)
        similarity = unit @ unit.T
        return similarity if self.kind == "linear" else self._knn(similarity)

    def _knn(self, similarity: Tensor) -> Tensor:
        """1 between samples that are among each other's nearest, 1/2 if only one way."""
        similarity.fill_diagonal_(-torch.inf)
        k = min(self.neighbors, len(similarity) - 1)
        nearest = torch.zeros_like(similarity)
        nearest.scatter_(1, similarity.topk(k, dim=1).indices, 1.0)
        return (nearest + nearest.T) / 2

    def _rbf(self, unit: Tensor) -> Tensor:
        distance = torch.cdist(unit, unit, compute_mode="donot_use_mm_for_euclid_dist")
        k = min(self.neighbors, len(unit))
        width = distance.kthvalue(k, dim=1).values.mean()
        # A width of 0, as for a single sample, leaves those that are the same.
        return (-0.5 * (distance / width.clamp_min(torch.finfo(width.dtype).eps)).square()).exp()
