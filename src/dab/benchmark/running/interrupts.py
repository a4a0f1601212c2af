"""Graceful interrupts."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType

__all__ = ["Interrupts"]


class Interrupts:
    """While open, the first Ctrl-C or SIGTERM sets `requested`; the second acts as usual.

    Schedulers signal all processes of a job, so workers of a loader may die too. torch reports that
    from its handler of SIGCHLD, as a RuntimeError wherever the main thread is. After a request,
    such errors are dropped: the loader still notices when it waits for images.

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
        _silence_dead_workers()

    def _restore(self) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)


def _silence_dead_workers() -> None:
    """For good: workers may also die after the run has stopped."""
    if not hasattr(signal, "SIGCHLD"):  # as on Windows
        return
    report = signal.getsignal(signal.SIGCHLD)
    if not callable(report):
        return

    def silent(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            report(number, frame)

    signal.signal(signal.SIGCHLD, silent)
