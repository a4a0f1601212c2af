"""RoTTA's policy: classes share the memory evenly; old and uncertain items are evicted first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dab.buffers.buffer import Placement
from dab.parts.schema import Array, take

__all__ = ["CSTUPolicy"]

_SATURATED = 37  # 1 / (1 + exp(-x)) is exactly 1 in double precision from here on


class CSTUPolicy:
    """Category-balanced sampling with timeliness and uncertainty (CSTU of the RoTTA paper).

    An item of age A and uncertainty U scores 1 / (1 + exp(-A/M)) + U / ln C. A new sample of a
    class with fewer than M / C items takes a free slot; if there is none, the candidates for
    eviction are all items of the largest classes. For any other class, the candidates are its own
    items. The candidate with the highest score is evicted, but only if it scores higher than the
    new sample at age 0; otherwise the sample is rejected. After every sample, all items age by one,
    including a new one.

    Items are ordered by class, ascending, then by insertion; of items with the same score, the last
    is evicted. There is always a candidate: a class with M / C items is not empty, and neither is a
    full memory.

    Items are stored in a table with a row per class, so that scoring takes a few vector operations
    whatever the number of candidates. The sigmoid is looked up by age.

    >>> policy = CSTUPolicy(capacity=2, classes=10)
    >>> policy.place(7, 0.3), policy.place(2, 0.1)
    (Placement(slot=0, evicted=None), Placement(slot=1, evicted=None))
    >>> policy.place(7, 2.0)  # class 7 has its share, and the new sample is less certain
    >>> policy.place(5, 0.1)  # the memory is full: slot 0 holds the oldest and least certain
    Placement(slot=0, evicted=7)
    >>> policy.labels, policy.ages
    ([5, 2], [1, 3])
    """

    def __init__(self, capacity: int, classes: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        if classes < 2:
            raise ValueError(f"uncertainty is measured in ln C, so classes >= 2, got {classes}")
        self.capacity = capacity
        self.classes = classes
        # Fewer than M / C items is fewer than this, so no class ever has more. In a full memory
        # the largest classes have at least the mean, M / C items, and so exactly this many.
        self._share = math.ceil(capacity / classes)
        # math.exp, because np.exp rounds differently on different CPUs.
        ages = range(_SATURATED * capacity + 1)
        self._timeliness = np.array([1 / (1 + math.exp(-age / capacity)) for age in ages])
        self._clear()

    def _clear(self) -> None:
        self._clock = 0  # samples seen
        self._occupied = 0
        self._counts = [0] * self.classes
        # The tables are in reverse order, the last class on top and the newest item in front,
        # because argmax returns the first of equal scores.
        shape = (self.classes, self._share)
        self._births = np.zeros(shape, dtype=np.int64)
        self._uncertainties = np.zeros(shape)  # U / ln C
        self._slots = np.full(shape, -1)  # -1: empty
        # The uncertainties of classes that have their share; no other item is ever a candidate.
        self._contested = np.full(shape, -np.inf)

    def __len__(self) -> int:
        return self._occupied

    @property
    def labels(self) -> list[int]:
        """The pseudo-label of each occupied slot."""
        label_of_row = np.arange(self.classes)[::-1, None]
        return self._by_slot(np.broadcast_to(label_of_row, self._slots.shape))

    @property
    def ages(self) -> list[int]:
        """The age of each occupied slot: 1 if the last sample filled it."""
        return self._by_slot(self._clock - self._births)

    def place(self, label: int, uncertainty: float) -> Placement | None:
        """Decide about a sample of this pseudo-label and entropy."""
        scaled = uncertainty / math.log(self.classes)
        placement = self._make_room(label, scaled)
        if placement is not None:
            self._insert(label, placement.slot, self._clock, scaled)
        self._clock += 1
        return placement

    def savepoint(self) -> Any:
        tables = (self._births, self._uncertainties, self._slots, self._contested)
        return self._clock, self._occupied, self._counts.copy(), [table.copy() for table in tables]

    def rollback(self, token: Any) -> None:
        self._clock, self._occupied, counts, tables = token
        self._counts = counts.copy()
        self._births, self._uncertainties, self._slots, self._contested = (
            table.copy() for table in tables
        )

    def state_dict(self) -> dict[str, Any]:
        """Labels, ages and U / ln C of the occupied slots; the rest is derived from them."""
        uncertainties = self._by_slot(self._uncertainties)
        return {
            "labels": torch.tensor(self.labels, dtype=torch.int64),
            "ages": torch.tensor(self.ages, dtype=torch.int64),
            "uncertainties": torch.tensor(uncertainties, dtype=torch.float64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a policy of the same capacity and class count."""
        labels, ages, uncertainties = (
            values.tolist()
            for values in take(
                state,
                labels=Array((None,), torch.int64),
                ages=Array((None,), torch.int64, below=2**62),
                uncertainties=Array((None,)),
            )
        )
        if not len(labels) == len(ages) == len(uncertainties) <= self.capacity:
            raise ValueError(
                f"the state's buffer has {len(labels)} labels, {len(ages)} ages and "
                f"{len(uncertainties)} uncertainties, which does not fit a buffer of "
                f"{self.capacity}"
            )
        if any(not 0 <= label < self.classes for label in labels):
            raise ValueError(f"the state's buffer has labels outside of {self.classes} classes")
        if max(Counter(labels).values(), default=0) > self._share:
            raise ValueError(
                f"the state's buffer has a class with more than {self._share} items, its share of "
                f"a buffer of {self.capacity} for {self.classes} classes"
            )
        if len(set(ages)) < len(ages) or min(ages, default=1) < 1:
            raise ValueError("the state's buffer has ages that are not positive and all different")
        if not all(map(math.isfinite, uncertainties)):
            raise ValueError("the state's buffer has uncertainties that are not finite")
        self._clear()
        for slot in sorted(range(len(ages)), key=ages.__getitem__, reverse=True):
            self._insert(labels[slot], slot, -ages[slot], uncertainties[slot])

    def _make_room(self, label: int, uncertainty: float) -> Placement | None:
        """A slot that is free or was freed by an eviction; None to reject the sample."""
        contests_its_own = self._counts[label] == self._share
        if not contests_its_own and self._occupied < self.capacity:
            return Placement(self._occupied, None)
        first, count = (self._row(label), 1) if contests_its_own else (0, self.classes)
        rows = slice(first, first + count)
        scores = self._timeliness.take(self._clock - self._births[rows], mode="clip")
        scores += self._contested[rows]
        best = int(scores.argmax())
        if scores.item(best) <= self._timeliness.item(0) + uncertainty:
            return None
        row, column = divmod(best, self._share)
        return self._remove(first + row, column)

    def _remove(self, row: int, column: int) -> Placement:
        """Remove an item from a full row."""
        slot = self._slots.item(row, column)
        for table in (self._births, self._uncertainties, self._slots):
            items = table[row]
            items[column:-1] = items[column + 1 :]
        self._slots[row, -1] = -1
        self._contested[row] = -np.inf
        label = self._row(row)
        self._counts[label] -= 1
        self._occupied -= 1
        return Placement(slot, label)

    def _insert(self, label: int, slot: int, birth: int, uncertainty: float) -> None:
        """Insert an item at the front of its row, which has room."""
        row = self._row(label)
        for table, value in (
            (self._births, birth),
            (self._uncertainties, uncertainty),
            (self._slots, slot),
        ):
            items = table[row]
            items[1:] = items[:-1]
            items[0] = value
        self._counts[label] += 1
        self._occupied += 1
        if self._counts[label] == self._share:
            self._contested[row] = self._uncertainties[row]

    def _row(self, label: int) -> int:
        """The row of a class, and also the class of a row."""
        return self.classes - 1 - label

    def _by_slot(self, table: npt.NDArray[Any]) -> list[Any]:
        occupied = self._slots >= 0
        values = np.empty(self._occupied, dtype=table.dtype)
        values[self._slots[occupied]] = table[occupied]
        listed: list[Any] = values.tolist()
        return listed
