"""One lock per model, shared by everything that uses it."""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

from torch import nn

__all__ = ["lock_of"]

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_GUARD = threading.Lock()


def lock_of(model: nn.Module) -> threading.RLock:
    """The lock of a model; looked up, not stored, so that adapters can be copied."""
    with _GUARD:
        lock = _LOCKS.get(model)
        if lock is None:
            lock = _LOCKS[model] = threading.RLock()
        return lock


def _after_fork() -> None:
    """In a forked child, the threads that held locks do not exist."""
    global _GUARD
    _GUARD = threading.Lock()
    _LOCKS.clear()


os.register_at_fork(after_in_child=_after_fork)
