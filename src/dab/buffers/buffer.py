"""A buffer is one policy (what is admitted and evicted) over one storage (the pixels)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from dab.buffers.storage import ImageStorage
from dab.parts.schema import Array, Nested, take
from dab.parts.transaction import Recorded

__all__ = ["Buffer", "Placement", "Policy"]


class Placement(NamedTuple):
    """The slot of a sample, and the class of the sample it evicts (None: the slot was free)."""

    slot: int
    evicted: int | None


class Policy(Protocol):
    """Decides, sample by sample, what is admitted and evicted. Slots are filled from 0 up."""

    def __len__(self) -> int:
        """The number of occupied slots."""

    @property
    def labels(self) -> list[int]:
        """The pseudo-label of each occupied slot."""

    def place(self, *facts: Any) -> Placement | None:
        """Decide about one sample from its facts (label, ...); None rejects it."""

    def savepoint(self) -> Any:
        """A copy of the bookkeeping, for `rollback`."""

    def rollback(self, token: Any) -> None:
        """Return to a savepoint."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Buffer(Recorded):
    """Images in a storage, admitted and evicted by a policy.

    >>> from dab.buffers import BalancedPolicy
    >>> buffer = Buffer(BalancedPolicy(capacity=2, classes=10), ImageStorage(capacity=2))
    >>> buffer.insert(torch.rand(3, 1, 4, 4), [4, 4, 9])
    [Placement(slot=0, evicted=None), Placement(slot=1, evicted=None), Placement(slot=0, evicted=4)]
    >>> len(buffer), buffer.read(torch.tensor([0, 1])).shape
    (2, torch.Size([2, 1, 4, 4]))
    >>> buffer.labels, buffer.ages
    ([9, 4], [0, 1])
    """

    holds_samples = True

    def __init__(self, policy: Policy, storage: ImageStorage) -> None:
        self.policy = policy
        self.storage = storage
        self._order = np.zeros(storage.capacity, np.int64)  # number of each slot's insertion
        self._insertions = 0

    def __len__(self) -> int:
        return len(self.policy)

    @property
    def labels(self) -> list[int]:
        """The pseudo-label of each occupied slot."""
        return self.policy.labels

    @property
    def ages(self) -> list[int]:
        """How many samples were admitted after that of each occupied slot; 0 for the newest."""
        ages: list[int] = (self._insertions - 1 - self._order[: len(self)]).tolist()
        return ages

    def insert(self, images: Tensor, *facts: Iterable[Any]) -> list[Placement | None]:
        """Offer images in stream order, with one sequence for each fact that the policy needs.

        Raises ValueError before anything changes for images that the storage cannot hold.
        """
        if len(images) == 0:
            return []
        encoded = self.storage.encode(images)
        placements = [self.policy.place(*sample) for sample in zip(*facts, strict=True)]
        # A later sample of the batch may evict an earlier one: the last one in a slot stays.
        row_of_slot = {
            placement.slot: row for row, placement in enumerate(placements) if placement is not None
        }
        if row_of_slot:
            numbers = np.cumsum([placement is not None for placement in placements])
            self._order[list(row_of_slot)] = (self._insertions - 1 + numbers)[
                [*row_of_slot.values()]
            ]
            self._insertions += numbers.item(-1)
            rows = torch.tensor(list(row_of_slot.values()), device=encoded.device)
            self.storage.write(list(row_of_slot), encoded[rows])
        return placements

    def read(self, slots: Tensor, device: torch.device | None = None) -> Tensor:
        """The images in these slots."""
        return self.storage.read(slots, device)

    def sample(
        self, count: int, generator: torch.Generator, device: torch.device | None = None
    ) -> Tensor:
        """`count` images drawn uniformly without replacement; all of them, if there are fewer."""
        return self.read(torch.randperm(len(self), generator=generator)[:count], device)

    @property
    def nbytes(self) -> int:
        """The bytes that the images of a full buffer take; 0 before the first image."""
        return self.storage.nbytes

    def savepoint(self) -> Any:
        storage, policy = self.storage.savepoint(), self.policy.savepoint()
        return storage, policy, self._order.copy(), self._insertions

    def rollback(self, token: Any) -> None:
        storage, policy, order, self._insertions = token
        self.storage.rollback(storage)
        self.policy.rollback(policy)
        self._order = order.copy()

    def release(self) -> None:
        self.storage.release()

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "storage": self.storage.state_dict(),
            "ages": torch.tensor(self.ages, dtype=torch.int64),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        policy, storage, ages = take(
            state,
            policy=Nested(),
            storage=Nested(),
            ages=Array((None,), torch.int64, least=0, below=2**62),
        )
        self.policy.load_state_dict(policy)
        self.storage.load_state_dict(storage)
        images = storage["images"]
        if len(self.policy) != (0 if images is None else len(images)):
            raise ValueError("the state's buffer does not hold as many images as labels")
        if not len(ages) == len(self.policy) == len(ages.unique()):
            raise ValueError("the state's buffer does not hold an age of its own for each image")
        # Only the differences matter, and that the next one is the newest.
        self._order[: len(self)] = -1 - ages.numpy()
        self._insertions = 0
