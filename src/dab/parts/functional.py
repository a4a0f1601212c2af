"""The quantities that weight, filter and drive adaptation, as plain functions of logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "averaged",
    "certainty",
    "cross_entropy",
    "diversity",
    "entropy",
    "evenly_spaced",
    "follow",
    "generalized_cross_entropy",
    "likelihood_ratio",
    "marginal_entropy",
    "min_max",
    "probabilities",
    "uniform",
]


def _at_least_float32(logits: Tensor) -> Tensor:
    """Half-precision logits are widened: an entropy near zero has no digits left in float16."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def probabilities(logits: Tensor) -> Tensor:
    """Softmax over the classes, in float32 or wider, without a gradient."""
    return _at_least_float32(logits.detach()).softmax(dim=1)


def averaged(logits: Tensor, others: Tensor) -> Tensor:
    """Logits of the mean of two softmaxes, with the offset of the first.

    >>> averaged(torch.tensor([[0.0, 9.0]]), torch.tensor([[9.0, 0.0]])).softmax(dim=1)
    tensor([[0.5000, 0.5000]])
    >>> averaged(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 2.0]]))
    tensor([[1., 3.]])
    """
    first, second = _at_least_float32(logits), _at_least_float32(others)
    offset = first.logsumexp(dim=1, keepdim=True)
    mean = torch.logaddexp(first, second.log_softmax(dim=1) + offset) - math.log(2)
    return mean.to(logits)


def evenly_spaced(count: int, total: int) -> Tensor:
    """Positions of `count` items, at most all, evenly spaced among `total`.

    >>> evenly_spaced(2, 8), evenly_spaced(9, 3)
    (tensor([2, 6]), tensor([0, 1, 2]))
    """
    count = min(count, total)
    return ((torch.arange(count) + 0.5) * (total / max(count, 1))).long()


def entropy(logits: Tensor) -> Tensor:
    """Entropy H(y) of each row's softmax, in nats.

    >>> entropy(torch.zeros(2, 10))
    tensor([2.3026, 2.3026])
    """
    log_probabilities = _at_least_float32(logits).log_softmax(dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean of all rows' softmax, in nats.

    >>> marginal_entropy(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))
    tensor(0.6931)
    """
    log_probabilities = _at_least_float32(logits).log_softmax(dim=1)
    # The logarithm of their sum serves as logits: their softmax is the mean.
    return entropy(log_probabilities.logsumexp(dim=0, keepdim=True))[0]


def cross_entropy(targets: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of each row's softmax against the softmax of its target logits.

    >>> cross_entropy(torch.zeros(1, 10), torch.zeros(1, 10))
    tensor([2.3026])
    """
    wanted = _at_least_float32(targets).softmax(dim=1)
    return -(wanted * _at_least_float32(logits).log_softmax(dim=1)).sum(dim=1)


def generalized_cross_entropy(logits: Tensor, labels: Tensor, q: float) -> Tensor:
    """(1 - y_c^q) / q of each row, where c is its label.

    It tends to the cross-entropy for q near 0, and is the expected error for q = 1.

    >>> generalized_cross_entropy(torch.zeros(1, 10), torch.tensor([3]), q=1.0)
    tensor([0.9000])
    """
    log_y = _at_least_float32(logits).log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
    return (1 - (q * log_y).exp()) / q


def likelihood_ratio(logits: Tensor, clip: float = 0.99) -> Tensor:
    """Soft likelihood ratio of each row, -sum_c p_c log(p_c / (1 - p_c)), with p clipped.

    Unlike that of the entropy, its gradient does not vanish for certain predictions up to the clip.
    """
    p = _at_least_float32(logits).softmax(dim=1).clamp(max=clip)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)


def uniform(classes: int) -> Tensor:
    """The tendency before the first batch: all classes equally likely."""
    return torch.full((classes,), 1 / classes, dtype=torch.float64)


def follow(tendency: Tensor, probabilities: Tensor, keep: float = 0.9) -> Tensor:
    """The tendency after a batch: keep * tendency + (1 - keep) * mean prediction."""
    return keep * tendency.to(probabilities) + (1 - keep) * probabilities.mean(dim=0)


def diversity(probabilities: Tensor, tendency: Tensor) -> Tensor:
    """How unlike the tendency each prediction is: 1 - cos(y_i, tendency), in [0, 1].

    >>> diversity(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1.0, 0.0])).tolist()
    [0.0, 1.0]
    """
    return 1 - F.cosine_similarity(probabilities, tendency.to(probabilities)[None], dim=1)


def certainty(entropies: Tensor, classes: int, ceiling: float = 10.0) -> Tensor:
    """How sure each prediction is: log C / H(y_i), clamped to [1, ceiling].

    The entropy is clamped before the division: a saturated prediction has H = -0.0, and
    log C / -0.0 = -inf would end up at the floor instead of the ceiling.

    >>> certainty(torch.tensor([-0.0, math.log(10)]), classes=10).tolist()
    [10.0, 1.0]
    """
    most = math.log(classes)
    return (most / entropies.clamp_min(most / ceiling)).clamp(1, ceiling)


def min_max(values: Tensor) -> Tensor:
    """Scaled to [0, 1] over the batch; all zeros when every value is the same.

    >>> min_max(torch.tensor([2.0, 3.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    >>> min_max(torch.tensor([7.0])).tolist()
    [0.0]
    """
    lowest, highest = torch.aminmax(values)
    if lowest == highest:
        return torch.zeros_like(values)
    return (values - lowest) / (highest - lowest)
