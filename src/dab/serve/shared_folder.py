"""A folder of states that several replicas share: each stream belongs to one of them at a time.

Each replica holds a lease, a small file that it renews. A stream in the memory of a replica has a
claim, a file with the id of that replica. Another replica may take the stream only if it has no
claim, or if the lease of its owner is void: expired, or of a process that died on this machine.

A replica that was stopped for longer than its lease may come back and still have copies of streams
that belong to others now. So whether a stream is still its own is read again once the lease was not
renewed in time, and before every write, under the same lock under which streams are taken over.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dab.benchmark.running.claims import holder, try_claim
from dab.fleet.shelf import Shelf, file_name
from dab.serve.errors import HeldError
from dab.utils import files

__all__ = ["SharedFolder", "shareable"]

logger = logging.getLogger("dab.serve")

LOCKS = 256  # files that are locked, each for its share of the streams; they are never removed


def shareable(folder: str) -> Path:
    """The absolute path of a folder; an object store is a ValueError."""
    found = files.location(folder)
    if not isinstance(found, Path):
        raise ValueError(
            f"replicas cannot share {folder}, because object stores have no locks: use a folder "
            "that all machines mount"
        )
    return found.absolute()


class SharedFolder(Shelf):
    """The files of streams, with an owner for each stream in memory.

    Args:
        folder: on a file system with locks that all replicas mount.
    """

    def __init__(self, folder: str) -> None:
        path = shareable(folder)
        super().__init__(path)
        self.id = uuid.uuid4().hex[:12]
        self.held: dict[str, int] = {}  # lapses of the lease when ownership was last read
        self._claims = path / "claims"
        for part in ("replicas", "streams", "locks"):
            (self._claims / part).mkdir(parents=True, exist_ok=True)
        lease = try_claim(self._claims / "replicas" / self.id)
        assert lease is not None, "nobody else has this id"
        self._lease = lease

    def owns(self, stream: str) -> bool:
        """Whether a stream that was taken is still this replica's."""
        if stream not in self.held:
            return False
        lapses = self._lease.lapses  # before reading: a later one is noticed next time
        if self._lease.is_current and self.held[stream] == lapses:
            return True
        with self._locked(stream):
            is_own = self._owner(stream) == self.id
        if is_own:
            self.held[stream] = lapses
        else:
            del self.held[stream]
        return is_own

    def take(self, stream: str) -> None:
        """Make a stream this replica's; `HeldError` if it belongs to another one."""
        if self.owns(stream):
            return
        lapses = self._lease.lapses
        with self._locked(stream):
            owner = self._owner(stream)
            if owner not in (None, self.id) and self._is_alive(owner):
                raise HeldError(stream, owner)
            files.write(self._claim(stream), self.id)
        self.held[stream] = lapses

    def release(self, stream: str) -> None:
        """Let others have a stream, whose state has been written."""
        with self._locked(stream):
            if self._owner(stream) == self.id:
                self._claim(stream).unlink()
        self.held.pop(stream, None)

    def close(self) -> None:
        """Let others have everything."""
        try:
            for stream in [*self.held]:
                self.release(stream)
        finally:
            self._lease.release()

    def write(self, stream: str, state: Any) -> None:
        with self._locked(stream):
            if self._is_own(stream, "is not saved"):
                super().write(stream, state)

    def remove(self, stream: str) -> None:
        with self._locked(stream):
            if self._is_own(stream, "is not removed"):
                super().remove(stream)

    def _is_own(self, stream: str, otherwise: str) -> bool:
        owner = self._owner(stream)
        if owner != self.id:
            logger.warning(
                "%s: another replica has taken it over", otherwise, extra={"stream": stream}
            )
            self.held.pop(stream, None)
        return owner == self.id

    def _claim(self, stream: str) -> Path:
        return self._claims / "streams" / file_name(stream)

    def _owner(self, stream: str) -> str | None:
        try:
            return self._claim(stream).read_text()
        except FileNotFoundError:
            return None

    def _is_alive(self, replica: str) -> bool:
        lease = holder(self._claims / "replicas" / replica)
        return lease is not None and lease.is_alive

    @contextmanager
    def _locked(self, stream: str) -> Iterator[None]:
        number = zlib.crc32(stream.encode()) % LOCKS
        opened = os.open(self._claims / "locks" / f"{number}", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield
        finally:
            os.close(opened)
