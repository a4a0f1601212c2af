"""The order in which a stream shows its images, as a permutation of their indices.

Each order is a function of the labels and a random generator, and of nothing else.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_delta", "correlated", "dirichlet", "shuffled"]

Order = NDArray[np.int64]


def shuffled(labels: NDArray[np.int64], rng: np.random.Generator) -> Order:
    """No order at all."""
    return rng.permutation(len(labels))


def correlated(labels: NDArray[np.int64], rng: np.random.Generator) -> Order:
    """One class after the other, ascending, and each class shuffled.

    >>> labels = np.array([2, 0, 1, 0, 2, 1])
    >>> labels[correlated(labels, np.random.default_rng(0))]
    array([0, 0, 1, 1, 2, 2])
    """
    order = shuffled(labels, rng)
    return order[np.argsort(labels[order], kind="stable")]


def check_delta(delta: float) -> None:
    """Refuse what is no parameter of a Dirichlet distribution."""
    if not (math.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number, got {delta}")


def dirichlet(labels: NDArray[np.int64], rng: np.random.Generator, delta: float) -> Order:
    """Classes come in runs whose lengths a Dirichlet distribution draws.

    There are as many slots of time as classes. Each class spreads its images over the slots by
    shares from Dirichlet(delta): a small delta puts nearly all of a class into one slot, a large
    one spreads it evenly. Within a slot the classes follow each other in random order.
    """
    check_delta(delta)
    classes, counts = np.unique(labels, return_counts=True)
    slots: list[list[Order]] = [[] for _ in classes]
    order = shuffled(labels, rng)
    by_class = np.split(order[np.argsort(labels[order], kind="stable")], counts.cumsum()[:-1])
    for images in by_class:
        shares = rng.dirichlet(np.full(len(slots), delta))
        cuts = np.rint(shares.cumsum()[:-1] * len(images)).astype(np.int64)
        for slot, run in zip(slots, np.split(images, cuts), strict=True):
            slot.append(run)
    runs = [slot[run] for slot in slots for run in rng.permutation(len(slot))]
    return np.concatenate(runs)
