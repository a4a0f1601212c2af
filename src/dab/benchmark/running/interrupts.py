"""Graceful interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """While open, the first Ctrl-C or SIGTERM sets `requested`; the second acts as usual.

    Schedulers signal all processes of a job, so the workers of a loader may die too. torch reports
    that from its SIGCHLD handler, as a RuntimeError at whatever point the main thread has reached.
    After a request, the handler no longer raises; the loader still notices dead workers when it
    waits for images.

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
            _report_dead_workers()
            self._before = {kind: signal.signal(kind, self._request) for kind in self.SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        self._restore()
        if self.requested:
            _silence_dead_workers()  # torch may have set its handler after the request

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        _silence_dead_workers()
        self._restore()

    def _restore(self) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)


class _Silenced:
    """A SIGCHLD handler without its RuntimeErrors."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            self.handler(number, frame)


def _silence_dead_workers() -> None:
    """Until the next run, because workers may die after this one has stopped."""
    handler = _child_handler()
    if callable(handler) and not isinstance(handler, _Silenced):
        signal.signal(signal.SIGCHLD, _Silenced(handler))


def _report_dead_workers() -> None:
    handler = _child_handler()
    if isinstance(handler, _Silenced):
        signal.signal(signal.SIGCHLD, handler.handler)


def _child_handler() -> Any:
    return signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None  # Windows
