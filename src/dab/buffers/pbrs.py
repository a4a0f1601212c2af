"""NOTE's policy: reservoir sampling within a class, balance between the classes."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dab.buffers.buffer import Placement
from dab.parts.schema import Array, take

__all__ = ["PBRSPolicy"]


class PBRSPolicy:
    """Prediction-balanced reservoir sampling (PBRS of the NOTE paper).

    While there is room, samples are appended. Then a new sample of any smaller class replaces a
    random item of a random largest class. A new sample of a largest class c replaces a random item
    of its own class with probability m_c / n_c, where m_c is the number of its items and n_c the
    number of samples seen of it, including this one; otherwise it is rejected.

    A full memory draws one number per sample, `torch.randint(high, (1,))`. For a smaller class it
    is the index of the evicted item among the items of all largest classes (equally large, so each
    class is as likely), ordered by class, then by slot. For a largest class, `high` is n_c; a
    number below m_c is the index of the evicted item among the class's own items by slot, any other
    rejects the sample.

    Args:
        capacity: M, the number of items.
        classes: C, the number of classes.
        generator: for the draws, on the CPU; its owner saves and restores it.

    >>> policy = PBRSPolicy(capacity=2, classes=10, generator=torch.Generator().manual_seed(0))
    >>> policy.place(7), policy.place(7)
    (Placement(slot=0, evicted=None), Placement(slot=1, evicted=None))
    >>> policy.place(5).evicted, sorted(policy.labels)
    (7, [5, 7])
    """

    def __init__(self, capacity: int, classes: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.classes = classes
        self.generator = generator
        self._labels: list[int] = []  # class of each slot
        self._seen = [0] * classes  # n
        self._sort_slots()

    def __len__(self) -> int:
        return len(self._labels)

    @property
    def labels(self) -> list[int]:
        """The pseudo-label of each occupied slot."""
        return list(self._labels)

    def place(self, label: int) -> Placement | None:
        """Decide about a sample of this pseudo-label."""
        self._seen[label] += 1
        placement = Placement(len(self), None) if len(self) < self.capacity else self._evict(label)
        if placement is not None:
            self._labels[placement.slot : placement.slot + 1] = [label]  # appended or replaced
            insort(self._slots[label], placement.slot)
            self._held[label] += 1
        return placement

    def savepoint(self) -> Any:
        return self._labels.copy(), self._seen.copy()

    def rollback(self, token: Any) -> None:
        labels, seen = token
        self._labels, self._seen = labels.copy(), seen.copy()
        self._sort_slots()

    def state_dict(self) -> dict[str, Any]:
        """Labels of the occupied slots and n of every class; the rest is derived from them."""
        return {
            "labels": torch.tensor(self._labels, dtype=torch.int64),
            "seen": torch.tensor(self._seen, dtype=torch.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a policy of the same capacity and class count."""
        labels, seen = (
            counts.tolist()
            for counts in take(
                state,
                labels=Array((None,), torch.int64),
                seen=Array((None,), torch.int64, least=0, below=2**62),
            )
        )
        if len(seen) != self.classes:
            raise ValueError(f"the state's buffer has {len(seen)} classes, expected {self.classes}")
        if any(not 0 <= label < self.classes for label in labels):
            raise ValueError(f"the state's buffer has labels outside of {self.classes} classes")
        held = Counter(labels)
        if len(labels) != min(sum(seen), self.capacity) or any(
            held[label] > samples for label, samples in enumerate(seen)
        ):
            raise ValueError(
                f"the state's buffer holds {len(labels)} samples of {sum(seen)} seen, which does "
                f"not fit a buffer of {self.capacity}"
            )
        self._labels, self._seen = labels, seen
        self._sort_slots()

    def _sort_slots(self) -> None:
        self._slots: list[list[int]] = [[] for _ in range(self.classes)]  # of each class, ascending
        for slot, label in enumerate(self._labels):
            self._slots[label].append(slot)
        self._held = np.array([len(slots) for slots in self._slots])  # m

    def _evict(self, label: int) -> Placement | None:
        """Evict an item from a full memory for a new sample; None rejects the sample."""
        most = self._held.max().item()
        if len(self._slots[label]) == most:
            evicted, number = label, self._draw(self._seen[label])
            if number >= most:
                return None
        else:
            largest = (self._held == most).nonzero()[0]
            index, number = divmod(self._draw(len(largest) * most), most)
            evicted = largest.item(index)
        self._held[evicted] -= 1
        return Placement(self._slots[evicted].pop(number), evicted)

    def _draw(self, high: int) -> int:
        return int(torch.randint(high, (1,), generator=self.generator).item())
