"""Which process executes a run, so that processes that share a folder do not repeat runs.

A claim is a small file in the run's folder that names its owner and when it expires. The owner
renews it from a thread for as long as it lives. A claim is void when it has expired, or at once if
its owner was a process of this machine that has died.

How far this holds: where files can be locked (local disks, most network file systems) exactly one
process gets a claim, and an owner that slept cannot take back what another has claimed. Without
locks, two that find the same void claim at the same moment may both get it; on object stores, where
creating a file is not exclusive, two that start within half a second may. That costs time, never
correctness: both compute the same bits, and results are written atomically. The same goes for
machines whose clocks differ by more than `LEASE`.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

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
        # A claim that says more than a lease from now was not written by an owner with this clock.
        if not time.time() <= self.expires <= time.time() + 2 * LEASE:
            return False
        return self.host != _host() or files.is_alive(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition(' ')[0]}"


class Claim:
    """A claim that this process holds: renewed while it is open, removed when it closes."""

    def __init__(self, folder: Location, owner: Owner) -> None:
        self._folder, self._owner = folder, owner
        self.lapses = 0  # renewals that came too late: others may have acted before them
        self._closed = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    @property
    def is_current(self) -> bool:
        """Whether it was renewed in time, so that nobody can have taken it over."""
        return time.time() < self._owner.expires - LEASE / 4  # clocks differ a little

    def release(self) -> None:
        """Let others have the run."""
        self._closed.set()
        self._renewing.join()
        with suppress(FileNotFoundError), _locked(self._folder):  # somebody removed the folder
            if self._is_ours():
                (self._folder / CLAIM).unlink(missing_ok=True)

    def _renew(self) -> None:
        while not self._closed.wait(LEASE / 4):
            with suppress(OSError):  # failing once is no reason to stop
                if not self._renew_once():
                    logger.warning("%s was taken over: did this process sleep?", self._folder)
                    return

    def _renew_once(self) -> bool:
        """False if it is not ours any more."""
        with _locked(self._folder):
            if not self._is_ours():
                return False
            renewed = replace(self._owner, expires=time.time() + LEASE)
            _write(self._folder, renewed)
            if not self.is_current:
                self.lapses += 1  # before it is current again
            self._owner = renewed
            return True

    def _is_ours(self) -> bool:
        found = holder(self._folder)
        return found is not None and found.id == self._owner.id


def holder(folder: Location) -> Owner | None:
    """Who claims the run in a folder, if anybody; an unreadable claim counts as none."""
    try:
        return from_json(Owner, parse(files.read(folder / CLAIM, LARGEST)))
    except (OSError, ValueError):
        return None


def try_claim(folder: Location) -> Claim | None:
    """Claim the run in a folder; None if another living process, or thread, has it."""
    owner = Owner(uuid.uuid4().hex, _host(), os.getpid(), time.time() + LEASE)
    if isinstance(folder, Path):
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            taken = _is_free(folder) and _create(folder, owner)
    elif taken := _is_free(folder):
        _write(folder, owner)
        time.sleep(SETTLE)
        last = holder(folder)
        taken = last is not None and last.id == owner.id
    return Claim(folder, owner) if taken else None


def _is_free(folder: Location) -> bool:
    found = holder(folder)
    return found is None or not found.is_alive


@contextmanager
def _locked(folder: Location) -> Iterator[None]:
    """Among the processes and threads that claim or renew a run, one at a time; not in stores."""
    if not isinstance(folder, Path):
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _create(folder: Path, owner: Owner) -> bool:
    """Replace a void claim; False if somebody else does, where there are no locks."""
    (folder / CLAIM).unlink(missing_ok=True)
    new = folder / f"{CLAIM}.{owner.id}"
    new.write_text(json.dumps(to_json(owner)))
    try:
        os.link(new, folder / CLAIM)  # with its content in one step, unless there is one
    except (FileExistsError, FileNotFoundError):  # somebody has it, and may have cleaned up
        return False
    except OSError:  # a file system without links
        new.replace(folder / CLAIM)
    finally:
        new.unlink(missing_ok=True)
    for left in folder.glob(f"{CLAIM}.?*"):  # by a process that was killed right here
        left.unlink(missing_ok=True)
    return True


def _write(folder: Location, owner: Owner) -> None:
    files.write(folder / CLAIM, json.dumps(to_json(owner)))


def _host() -> str:
    """This machine; of containers, each with its own process numbers, this container."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not on Linux
        return socket.gethostname()
