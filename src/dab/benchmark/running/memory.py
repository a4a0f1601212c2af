"""Memory of this process: its peak, and whether the allocator keeps what is freed."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

__all__ = ["keep_freed", "peak_mib", "restart_peak"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


def keep_freed() -> bool:
    """Let this process reuse freed memory from now on; whether it can: glibc's allocator only.

    By default, glibc asks the system for every tensor of over 32 MiB and returns it at once, and
    the system clears its pages at first use, which can take half the time of a forward pass.
    """
    libc = _libc()
    if libc is None:
        return False
    return bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, -1))


def restart_peak() -> None:
    """Return freed memory and reset the peak, if the system allows it (Linux)."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)
    try:
        _CLEAR.write_text("5")
    except OSError:
        return  # the peak stays that of the whole process


def peak_mib() -> float:
    """The peak resident memory of the process."""
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _libc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
