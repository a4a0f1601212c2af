"""What RoTTA and NOTE share: a memory that is offered every sample, and regular updates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dab.adapter import Adapter

__all__ = ["PeriodicAdapter"]


class PeriodicAdapter(Adapter):
    """Updates after every `update_every` samples, also in the middle of a batch.

    Its memory has a `buffer` and a count `waiting` of the samples since the last update.
    """

    learns_from_buffer = True
    scales_with_capacity = ("update_every",)
    update_every: int

    @abstractmethod
    def update(self) -> None:
        """Learn from the memory."""

    def remember(self, images: Tensor, *facts: Sequence[Any]) -> None:
        """Offer samples to the memory in stream order, with an update wherever one is due."""
        memory, last = self.memory, self.last
        start = 0
        while start < len(images):
            # At least one: a loaded state may have waited longer than this adapter does.
            part = slice(start, start + max(1, self.update_every - memory.waiting))
            placements = memory.buffer.insert(images[part], *(fact[part] for fact in facts))
            stored = [placement for placement in placements if placement is not None]
            last.admitted += len(stored)
            last.replaced += sum(placement.evicted is not None for placement in stored)
            start += len(placements)
            memory.waiting += len(placements)
            if memory.waiting >= self.update_every:
                memory.waiting = 0
                for _ in range(self.steps):
                    self.update()
        last.fill = len(memory.buffer)

    def progress(self) -> str:
        """How many images are missing until the next update."""
        waiting = 0 if self.memory is None else self.memory.waiting
        return f"waiting: {waiting:,} of {self.update_every:,} images until the next update"
