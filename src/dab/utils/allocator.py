"""The C library's allocator, told to keep what is freed. Only glibc's can be told."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed", "return_freed"]

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # malloc.h


def keep_freed() -> bool:
    """Let this process reuse freed memory from now on; whether it can.

    By default, glibc asks the system for every tensor of over 32 MiB and returns it at once, and
    the system clears its pages at first use, which can take a third of a forward pass. Call it
    before threads start: those that have memory of their own still do so.
    """
    libc = _libc()
    if libc is None:
        return False
    # Threads share one arena, because those of other threads are too small for large tensors.
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_ARENA_MAX: 1}
    return all(libc.mallopt(name, value) for name, value in settings.items())


def return_freed() -> None:
    """Return to the system what is free now."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


def _libc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
