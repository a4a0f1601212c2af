"""Graceful interrupts."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """While open, the first Ctrl-C or SIGTERM sets `requested`; the second acts as usual.

    >>> with Interrupts() as interrupts:
    ...     interrupts.requested
    False
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> Interrupts:
        self._before = {}
        if threading.current_thread() is threading.main_thread():  # only it may handle signals
            self._before = {kind: signal.signal(kind, self._request) for kind in self.SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)
