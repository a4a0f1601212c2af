"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from dab.utils import allocator

__all__ = ["peak_mib", "restart_peak"]

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def restart_peak() -> None:
    """Return freed memory and reset the peak, if the system allows it (Linux)."""
    allocator.return_freed()
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
