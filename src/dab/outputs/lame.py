"""LAME's correction: similar samples get similar labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.outputs.output import Output, register_output
from dab.parts.functional import probabilities
from dab.parts.options import Count, NonNegative

__all__ = ["Laplacian"]


@register_output("lame")
class Laplacian(Output):
    """Laplacian-adjusted maximum likelihood over the samples of a batch (Boudiaf et al., 2022).

    Assumes that near neighbors in feature space within a batch share a class. That holds if a batch
    has few classes, as on a sorted stream. On a shuffled stream of many classes, most neighbors
    belong to another class, and it fails badly.

    Args:
        neighbors: k of the k-nearest-neighbor affinity.
        rounds: iterations of the fixed point, at most.
        tolerance: stop when the energy changes by less.
    """

    needs_features = True

    def __init__(
        self, neighbors: Count = 5, rounds: Count = 100, tolerance: NonNegative = 1e-8
    ) -> None:
        self.neighbors, self.rounds, self.tolerance = neighbors, rounds, tolerance

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
        """W: 1 between samples that are among each other's nearest, 1/2 if only one way."""
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        similarity = F.normalize(wide, dim=1) @ F.normalize(wide, dim=1).T
        similarity.fill_diagonal_(-torch.inf)
        k = min(self.neighbors, len(features) - 1)
        nearest = torch.zeros_like(similarity)
        nearest.scatter_(1, similarity.topk(k, dim=1).indices, 1.0)
        return (nearest + nearest.T) / 2
