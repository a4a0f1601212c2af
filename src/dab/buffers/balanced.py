"""DAB's policy: admits every sample, and evicts the oldest item of the most frequent classes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import torch

from dab.buffers.buffer import Placement
from dab.parts.schema import Array, Integer, take

__all__ = ["BalancedPolicy"]

# More insertions than any stream has, so that one number sorts classes by count, then by age.
_HORIZON = 1 << 48


class BalancedPolicy:
    """Keeps the classes of a buffer in balance (Algorithm 1 of the DAB paper).

    While there is room, samples are appended. Then every new sample replaces the oldest item among
    all items whose class has the highest count. If several classes tie, the items of all of them
    are candidates.

    Each class keeps its slots in order of insertion, and a tournament tree over the classes finds
    the next item to evict, so placing a sample takes O(log C) whatever the capacity.

    >>> policy = BalancedPolicy(capacity=3, classes=10)
    >>> [policy.place(label).slot for label in (7, 7, 2)]
    [0, 1, 2]
    >>> policy.place(5)  # class 7 has the most items, slot 0 holds its oldest
    Placement(slot=0, evicted=7)
    """

    def __init__(self, capacity: int, classes: int) -> None:
        self.capacity = capacity
        self.classes = classes
        self._labels: list[int] = []  # class of each slot
        self._order: list[int] = []  # number of the insertion that filled each slot
        self._insertions = 0
        self._start_tournament()

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> list[int]:
        """The pseudo-label of each occupied slot."""
        return list(self._labels)

    @property
    def order(self) -> list[int]:
        """The number of the insertion that filled each occupied slot."""
        return list(self._order)

    def place(self, label: int) -> Placement:
        """Decide on a slot for a sample of this pseudo-label."""
        if len(self._labels) < self.capacity:
            slot, evicted = len(self._labels), None
            self._labels.append(label)
            self._order.append(self._insertions)
        else:
            evicted = self._winners[1]
            slot = self._slots[evicted].popleft()
            self._play(evicted)
            self._labels[slot] = label
            self._order[slot] = self._insertions
        self._slots[label].append(slot)
        self._play(label)
        self._insertions += 1
        return Placement(slot, evicted)

    def savepoint(self) -> Any:
        return self._labels.copy(), self._order.copy(), self._insertions

    def rollback(self, token: Any) -> None:
        labels, order, self._insertions = token
        self._labels, self._order = labels.copy(), order.copy()
        self._start_tournament()

    def state_dict(self) -> dict[str, Any]:
        """Labels and insertion numbers of the occupied slots; the rest is derived from them."""
        return {
            "labels": torch.tensor(self._labels, dtype=torch.int64),
            "order": torch.tensor(self._order, dtype=torch.int64),
            "insertions": self._insertions,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a policy of the same capacity and class count."""
        labels, order, insertions = take(
            state,
            labels=Array((None,), torch.int64),
            order=Array((None,), torch.int64, least=0),
            insertions=Integer(below=_HORIZON),
        )
        labels, order = labels.tolist(), order.tolist()
        full = insertions >= self.capacity
        if len(labels) != len(order) or len(labels) != min(insertions, self.capacity):
            raise ValueError(
                f"the state's buffer holds {len(labels)} samples after {insertions} "
                f"insertions, which does not fit a {'full ' if full else ''}buffer of "
                f"{self.capacity}"
            )
        if any(not 0 <= label < self.classes for label in labels):
            raise ValueError(f"the state's buffer has labels outside of {self.classes} classes")
        if len(set(order)) < len(order) or max(order, default=-1) >= insertions:
            raise ValueError("the state's buffer has insertions that are out of order")
        self._labels, self._order, self._insertions = labels, order, insertions
        self._start_tournament()

    # A tournament tree: leaf `offset + c` is class c, every inner node names the better of its
    # two children, node 1 is the winner. A change of one class replays log2(C) matches.

    def _start_tournament(self) -> None:
        self._offset = 1 << (self.classes - 1).bit_length()
        self._winners = [0] * self._offset + list(range(self._offset))
        self._strength = [0] * self._offset
        self._slots: dict[int, deque[int]] = defaultdict(deque)
        for slot in sorted(range(len(self._order)), key=self._order.__getitem__):
            self._slots[self._labels[slot]].append(slot)
        for label, slots in self._slots.items():
            self._strength[label] = len(slots) * _HORIZON - self._order[slots[0]]
        for node in range(self._offset - 1, 0, -1):
            left, right = self._winners[2 * node], self._winners[2 * node + 1]
            self._winners[node] = left if self._strength[left] >= self._strength[right] else right

    def _play(self, label: int) -> None:
        winners, strength, slots = self._winners, self._strength, self._slots[label]
        strength[label] = len(slots) * _HORIZON - self._order[slots[0]] if slots else 0
        node = (self._offset + label) >> 1
        while node:
            left, right = winners[2 * node], winners[2 * node + 1]
            winners[node] = left if strength[left] >= strength[right] else right
            node >>= 1
