"""One lock per model, shared by everything that uses it."""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

from torch import nn

__all__ = ["lock_of"]

_LOCKS: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()


def lock_of(model: nn.Module) -> threading.RLock:
    """The lock of a model; looked up, not stored, so that adapters can be copied.

    `setdefault` is atomic. A lock around it could be held by the very call that a signal handler,
    which also wants a lock, interrupts.
    """
    return _LOCKS.setdefault(model, threading.RLock())


# As torch.compiler.disable does, without loading the compiler: torch.compile(adapter) runs what
# locks as it is written, and with fullgraph=True, torch's error contains the reason.
lock_of._torchdynamo_disable = True  # type: ignore[attr-defined]
lock_of._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "adapting is not one graph: compile the model instead, before it is wrapped, with "
    "torch.compile(model, fullgraph=True)"
)

# In a forked child, the threads that held locks do not exist.
os.register_at_fork(after_in_child=_LOCKS.clear)
