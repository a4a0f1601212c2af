"""Who is making a run: several processes that share a folder of results do not repeat each other.

A claim is a small file in the run's folder that names its owner and when it expires. The owner
renews it from a thread for as long as it lives. A claim is void when it has expired, or at once if
its owner was a process of this machine that has died.

How far this holds: on a local disk, and on network file systems with atomic links, exactly one
process gets a free claim. Two that find the same void claim at the same moment may, in a window of
microseconds, both end up working; on object stores, where creating a file is not exclusive, two
that start within the same second may. That costs time, never correctness: results are the same to
the bit and are written atomically. Machines whose clocks differ by more than `LEASE` may take a
living owner's claim for expired, at the same price.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from dab.utils import files
from dab.utils.files import Location
from dab.utils.typed_json import from_json, parse, to_json

__all__ = ["CLAIM", "Claim", "Owner", "holder", "try_claim"]

logger = logging.getLogger("dab")

CLAIM = "claim.json"
LEASE = 60.0  # seconds that a claim is good for without being renewed
SETTLE = 0.5  # seconds after which a store shows who wrote last
LARGEST = 4096  # bytes


@dataclass(frozen=True)
class Owner:
    """Who holds a claim, and until when."""

    id: str
    host: str
    pid: int
    expires: float  # seconds since 1970

    @property
    def is_alive(self) -> bool:
        """Whether the claim holds: neither expired nor left behind by a dead process."""
        if time.time() > self.expires:
            return False
        return self.host != _host() or files.is_alive(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition(' ')[0]}"


class Claim:
    """A claim that this process holds: renewed while it is open, removed when it closes."""

    def __init__(self, file: Location, owner: Owner) -> None:
        self._file, self._owner = file, owner
        self._closed = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the run."""
        self._closed.set()
        self._renewing.join()
        if self._is_ours():
            self._file.unlink(missing_ok=True)

    def _renew(self) -> None:
        while not self._closed.wait(LEASE / 4):
            if not self._is_ours():
                logger.warning("%s was taken over: did this process sleep?", self._file)
                return
            with suppress(OSError):  # a storage that fails once is not a reason to stop
                _write(self._file, replace(self._owner, expires=time.time() + LEASE))

    def _is_ours(self) -> bool:
        found = holder(self._file.parent)
        return found is not None and found.id == self._owner.id


def holder(folder: Location) -> Owner | None:
    """Who claims the run in a folder, if anybody; an unreadable claim counts as none."""
    try:
        return from_json(Owner, parse(files.read(folder / CLAIM, LARGEST)))
    except (OSError, ValueError):
        return None


def try_claim(folder: Location) -> Claim | None:
    """Claim the run in a folder; None if another living process, or thread, has it."""
    file = folder / CLAIM
    owner = Owner(uuid.uuid4().hex, _host(), os.getpid(), time.time() + LEASE)
    found = holder(folder)
    if found is not None and found.is_alive:
        return None
    if isinstance(file, Path):
        taken = _take(file, owner, found)
    else:
        _write(file, owner)
        time.sleep(SETTLE)
        last = holder(folder)
        taken = last is not None and last.id == owner.id
    return Claim(file, owner) if taken else None


def _take(file: Path, owner: Owner, void: Owner | None) -> bool:
    """Put a claim on a local disk, in place of a void one if there is one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # With the names of half-written files, which are cleaned up if this process is killed here.
    suffix = f"{owner.id}.{socket.gethostname()}.{owner.pid}.part"
    old, new = file.with_name(f"{CLAIM}.old.{suffix}"), file.with_name(f"{CLAIM}.new.{suffix}")
    if os.path.lexists(file):
        # Moved aside rather than replaced: of two who found it void, one finds it gone.
        try:
            file.rename(old)
        except FileNotFoundError:
            return False
        moved = _owner_in(old)
        if moved is not None and moved != void and moved.is_alive:
            _link(old, file)  # somebody had claimed the run in between
            old.unlink()
            return False
        old.unlink()
    new.write_text(json.dumps(to_json(owner)))
    try:
        return _link(new, file)
    finally:
        new.unlink()


def _link(source: Path, target: Path) -> bool:
    """Give a file a second name in one step, unless that is taken."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        try:
            with target.open("xb") as file:
                file.write(source.read_bytes())
        except FileExistsError:
            return False
    return True


def _owner_in(file: Path) -> Owner | None:
    try:
        return from_json(Owner, parse(files.read(file, LARGEST)))
    except (OSError, ValueError):
        return None


def _write(file: Location, owner: Owner) -> None:
    files.write(file, json.dumps(to_json(owner)))


def _host() -> str:
    """This machine; of containers, each with its own process numbers, this container."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not on Linux
        return socket.gethostname()
