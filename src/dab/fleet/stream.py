"""A handle on one stream of a fleet."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from dab.buffers import Buffer
from dab.guard import Health
from dab.parts.locks import lock_of
from dab.parts.step import Step, Totals

if TYPE_CHECKING:
    from dab.adapter import Adapter
    from dab.fleet.fleet import Fleet

__all__ = ["Stream"]


class Stream:
    """One stream of a fleet, to look at, save, resume and reset.

    Looking at a stream that is aside reads its file, and leaves it aside. What its last call did is
    not in the file.
    """

    def __init__(self, fleet: Fleet, stream: str) -> None:
        self._fleet, self.id = fleet, stream

    def __repr__(self) -> str:
        return f"<stream {self.id!r}: {self.status}>"

    @property
    def _adapter(self) -> Adapter:
        return self._fleet._look_at(self.id)

    @property
    def aside(self) -> bool:
        """Whether it is in the folder only."""
        return self.id not in self._fleet.streams

    @property
    def status(self) -> str:
        """What it is doing, in one line."""
        with lock_of(self._fleet.model):
            return self._adapter.status

    @property
    def health(self) -> Health | None:
        """What its guard thinks of the adaptation, without labels; None if there is no guard."""
        with lock_of(self._fleet.model):
            return self._adapter.health

    @property
    def totals(self) -> Totals:
        """What all its calls since the last reset did together."""
        with lock_of(self._fleet.model):
            return self._adapter.totals

    @property
    def last(self) -> Step:
        """What its last call did."""
        with lock_of(self._fleet.model):
            return self._adapter.last

    @property
    def buffer(self) -> Buffer | None:
        """The images that it keeps, if it keeps any: to be looked at, not changed."""
        with lock_of(self._fleet.model):
            return self._adapter.buffer

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory, with a full buffer."""
        with lock_of(self._fleet.model):
            return self._fleet._size_of(self._adapter)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume, also with an adapter of its own."""
        return self._adapter.state_dict()

    def save(self, path: str | PathLike[str] | None = None) -> None:
        """Write `state_dict` to a file, atomically; the stream stays where it is.

        Without a path, to its file in the fleet's folder, unless that is up to date.
        """
        if path is None:
            self._fleet._save_one(self.id)
        else:
            self._adapter.save(path)

    def load(self, path: str | PathLike[str]) -> None:
        """Resume from a file that this, a fleet, or an adapter of this method wrote."""
        self._fleet._resume(self.id, path)

    def reset(self) -> None:
        """Back to the source."""
        self._fleet.reset(self.id)
