"""Orders of images, as permutations of their indices.

Each order depends on the labels or tracks and on a random generator alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_track", "check_delta", "correlated", "dirichlet", "shuffled"]

Order = NDArray[np.int64]


def shuffled(labels: NDArray[np.int64], rng: np.random.Generator) -> Order:
    """A random order."""
    return rng.permutation(len(labels))


def correlated(labels: NDArray[np.int64], rng: np.random.Generator) -> Order:
    """Sorted by class, and shuffled within each class.

    >>> labels = np.array([2, 0, 1, 0, 2, 1])
    >>> labels[correlated(labels, np.random.default_rng(0))]
    array([0, 0, 1, 1, 2, 2])
    """
    order = shuffled(labels, rng)
    return order[np.argsort(labels[order], kind="stable")]


def by_track(tracks: NDArray[np.int64], rng: np.random.Generator) -> Order:
    """Tracks in random order, each with its images in the order they have.

    >>> tracks = np.array([7, 7, 7, 8, 8, 9, 9, 9])
    >>> tracks[by_track(tracks, np.random.default_rng(0))]
    array([8, 8, 9, 9, 9, 7, 7, 7])
    """
    distinct, which = np.unique(tracks, return_inverse=True)
    return np.argsort(rng.permutation(len(distinct))[which], kind="stable")


def check_delta(delta: float) -> None:
    """Raises a ValueError unless delta is a parameter of a Dirichlet distribution."""
    if not (math.isfinite(delta) and delta > 0):
        raise ValueError(f"delta must be a positive number, got {delta}")


def dirichlet(labels: NDArray[np.int64], rng: np.random.Generator, delta: float) -> Order:
    """Classes in runs, with lengths drawn from a Dirichlet distribution.

    There are as many time slots as classes. The images of each class are divided among the slots
    in proportions drawn from Dirichlet(delta): a small delta puts nearly all of them into one slot,
    a large delta spreads them evenly. Within a slot, classes follow each other in random order.
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
