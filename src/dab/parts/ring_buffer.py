"""The last rows of some tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dab.parts.schema import Array, Integer, take
from dab.parts.transaction import Recorded

__all__ = ["RingBuffer"]


@dataclass(frozen=True)
class _Columns:
    """A tensor of each kind, or none at all."""

    kinds: tuple[Array, ...]

    @property
    def words(self) -> str:
        return f"a list of {', '.join(kind.words for kind in self.kinds) or 'tensors'}"

    def fits(self, value: Any) -> bool:
        if not isinstance(value, list) or not all(isinstance(column, Tensor) for column in value):
            return False
        if not value or not self.kinds:
            return True
        return len(value) == len(self.kinds) and all(
            kind.fits(column) for kind, column in zip(self.kinds, value, strict=True)
        )


class RingBuffer(Recorded):
    """Holds the last `capacity` rows that were pushed, in columns that belong together.

    Args:
        capacity: how many rows it holds.
        kinds: what a saved state must have in each column.

    >>> ring = RingBuffer(capacity=3)
    >>> ring.push(torch.tensor([1, 2]), torch.tensor([0.1, 0.2]))
    >>> ring.push(torch.tensor([3, 4]), torch.tensor([0.3, 0.4]))
    >>> ring.columns[0], len(ring)  # 4 has taken the place of 1
    (tensor([4, 2, 3]), 3)
    """

    holds_samples = True

    def __init__(self, capacity: int, *kinds: Array) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity, self.kinds = capacity, kinds
        self._columns: list[Tensor] = []
        self._pushed = 0
        self._overwritten: list[tuple[Tensor, Tensor, Tensor]] | None = None  # if recording

    def __len__(self) -> int:
        return min(self._pushed, self.capacity)

    @property
    def columns(self) -> list[Tensor]:
        """The rows held, column by column."""
        return [column[: len(self)] for column in self._columns]

    def push(self, *rows: Tensor) -> None:
        """Add rows, one tensor per column."""
        if not self._columns:
            self._columns = [part.new_empty((self.capacity, *part.shape[1:])) for part in rows]
        count = len(rows[0])
        kept = min(count, self.capacity)
        places = torch.arange(self._pushed + count - kept, self._pushed + count) % self.capacity
        for column, part in zip(self._columns, rows, strict=True):
            where = places.to(column.device)
            if self._overwritten is not None:
                self._overwritten.append((column, where, column[where]))
            column[where] = part[count - kept :].to(column)
        self._pushed += count

    def savepoint(self) -> Any:
        self._overwritten = []
        return self._columns, self._pushed, self._overwritten

    def rollback(self, token: Any) -> None:
        self._columns, self._pushed, overwritten = token
        for column, where, rows in reversed(overwritten):
            column[where] = rows

    def release(self) -> None:
        self._overwritten = None

    def state_dict(self) -> dict[str, Any]:
        return {"columns": [column.clone() for column in self.columns], "pushed": self._pushed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the rows of a ring buffer of the same capacity."""
        columns, pushed = take(state, columns=_Columns(self.kinds), pushed=Integer())
        if any(len(column) != min(pushed, self.capacity) for column in columns):
            raise ValueError(f"the state's ring buffer does not fit a capacity of {self.capacity}")
        if bool(columns) != bool(pushed):
            raise ValueError(f"its ring buffer has {len(columns)} columns after {pushed} rows")
        self._pushed, self._columns = pushed, []
        for column in columns:
            self._columns.append(column.new_empty((self.capacity, *column.shape[1:])))
            self._columns[-1][: len(column)] = column
