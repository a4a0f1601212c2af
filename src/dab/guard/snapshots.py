"""The healthy states of an adapter to return to: the trained numbers, not the network."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from torch import Tensor

from dab.parts.schema import Integer, List, Nested, take
from dab.parts.state_file import leaves
from dab.parts.transaction import Recorded

if TYPE_CHECKING:
    from dab.adapter import Adapter

__all__ = ["Snapshots"]


class Snapshots(Recorded):
    """The last few healthy states, oldest first; the source is older than all of them.

    A snapshot holds the trained parameters with their optimizer, the statistics of BatchNorm
    layers, and what the method remembers other than samples: a teacher, tendencies, counts.
    Buffers keep their images.

    Args:
        capacity: how many to hold.
        every: images between two snapshots, at least.
    """

    def __init__(self, capacity: int, every: int) -> None:
        self.capacity, self.every = capacity, every
        self._held: tuple[dict[str, Any], ...] = ()
        self._since = 0  # images since one was due

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors held."""
        return sum(value.nbytes for _, value in leaves(self._held) if isinstance(value, Tensor))

    def follow(self, images: int) -> bool:
        """So many more images have been seen; returns whether it is time for a snapshot."""
        self._since += images
        return self._since >= self.every

    def offer(self, adapter: Adapter, well: bool) -> None:
        """Remember the adapter if it is well; either way, the next one is due a while later."""
        if well:
            self.take(adapter)
        self._since = 0

    def take(self, adapter: Adapter) -> None:
        """Remember the adapter as it is, and forget the oldest if there are too many."""
        self._held = (*self._held, take_snapshot(adapter))[-self.capacity :]

    def clear(self) -> None:
        """Forget all; the next one is due as if it were the first."""
        self._held, self._since = (), 0

    def restore(self, adapter: Adapter, back: int) -> bool:
        """Return to the snapshot this many steps back, 1 being the latest, and drop later ones.

        Further back than the oldest one is the source; returns whether it is a snapshot.
        """
        kept = len(self._held) - back
        if kept >= 0:
            restore_snapshot(adapter, self._held[kept])
        else:
            adapter.return_to_source(forget=False)
        self._held, self._since = self._held[: max(0, kept)], 0
        return kept >= 0

    def state_dict(self) -> dict[str, Any]:
        return {"held": [deepcopy(snapshot) for snapshot in self._held], "since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        held, since = take(state, held=List(Nested()), since=Integer())
        if len(held) > self.capacity:
            raise ValueError(f"it holds {len(held)} snapshots, more than {self.capacity}")
        self._held, self._since = tuple(deepcopy(snapshot) for snapshot in held), since

    def check(self, adapter: Adapter, memory: Any) -> None:
        """Refuse snapshots that do not fit an adapter with such a memory."""
        for snapshot in self._held:
            check_snapshot(adapter, memory, snapshot)


def take_snapshot(adapter: Adapter) -> dict[str, Any]:
    return {
        "weights": adapter.trained.state_dict(),
        "statistics": adapter.statistics.state_dict(),
        "memory": {name: _copied(value) for name, value in _learned(adapter.memory).items()},
    }


def restore_snapshot(adapter: Adapter, snapshot: Mapping[str, Any]) -> None:
    adapter.trained.load_state_dict(snapshot["weights"])
    adapter.statistics.load_state_dict(snapshot["statistics"])
    for name, value in snapshot["memory"].items():
        part = getattr(adapter.memory, name)
        if hasattr(part, "load_state_dict"):
            part.load_state_dict(value)
        else:
            setattr(adapter.memory, name, _copied(value))


def check_snapshot(adapter: Adapter, memory: Any, snapshot: Any) -> None:
    weights, statistics, saved = take(
        snapshot, weights=Nested(), statistics=Nested(), memory=Nested()
    )
    adapter.trained.check_state_dict(weights)
    deepcopy(adapter.statistics).load_state_dict(statistics)
    learned = _learned(memory)
    if saved.keys() != learned.keys():
        raise ValueError(f"a snapshot has {sorted(saved)}, expected {sorted(learned)}")
    for name, part in learned.items():
        if hasattr(part, "load_state_dict"):
            deepcopy(part).load_state_dict(saved[name])


def _learned(memory: Any) -> dict[str, Any]:
    """The fields of a memory, but for those that hold samples."""
    if memory is None:
        return {}
    named = {field.name: getattr(memory, field.name) for field in fields(memory)}
    return {k: v for k, v in named.items() if not getattr(v, "holds_samples", False)}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.state_dict() if hasattr(value, "state_dict") else value
