"""Interrupts at chosen moments, by signals as the system sends them."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import itertools
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import dab

__all__ = ["Interrupt", "Moment", "moments"]

Moment = tuple[CodeType, int, int]  # a place in the code, and how often it was passed before

_TORCH = Path(torch.__file__).parent
_PLACES = (
    str(Path(dab.__file__).parent),
    contextlib.__file__,
    *(str(_TORCH / name) for name in ("autograd/grad_mode.py", "utils/_contextlib.py", "optim")),
    str(_TORCH / "nn/modules/module.py"),
)

# Python runs signal handlers after calls of C functions, at the start of Python functions and when
# a loop jumps back. A signal that comes just before a return waits for the caller's next one.
_LOOKS = ("CALL", "RETURN", "JUMP_BACKWARD", "JUMP_ABSOLUTE")

# A signal is pending from here on: a trace function in C, so that none of its own instructions
# looks for signals.
_send: Callable[..., None] = ctypes.pythonapi.PyErr_SetInterrupt
_send.argtypes = [ctypes.py_object] * 3  # type: ignore[attr-defined]
_send.restype = None  # type: ignore[attr-defined]


@cache
def _before_looks(code: CodeType) -> frozenset[int]:
    """The instructions of a function after which Python may look for signals."""
    if not code.co_filename.startswith(_PLACES):
        return frozenset()
    instructions = list(dis.get_instructions(code))
    return frozenset(
        first.offset
        for first, second in itertools.pairwise(instructions)
        if second.opname.startswith(_LOOKS)
    )


class _Tracing:
    """Follows each instruction of this package, and of what torch does for it in Python."""

    def __init__(self) -> None:
        self.passed: dict[tuple[CodeType, int], int] = {}

    def __enter__(self) -> None:
        sys.settrace(self._enter)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not _before_looks(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._follow

    def _follow(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode" and frame.f_lasti in _before_looks(frame.f_code):
            place = frame.f_code, frame.f_lasti
            number = self.passed.get(place, 0)
            self.passed[place] = number + 1
            return self.trace((*place, number))
        return self._follow

    def trace(self, moment: Moment) -> Any:
        """The trace function for the next instruction."""
        return self._follow


def moments(work: Callable[[], Any]) -> list[Moment]:
    """The first and the last time that some work passes each place in the code."""
    tracing = _Tracing()
    with tracing:
        work()
    return [
        (*place, number)
        for place, passed in tracing.passed.items()
        for number in sorted({0, passed - 1})
    ]


def _raise() -> None:
    raise KeyboardInterrupt


class Interrupt(_Tracing):
    """Sends SIGINT at one moment of a block; its handler raises KeyboardInterrupt, or as given."""

    def __init__(self, moment: Moment, handler: Callable[[], Any] = _raise) -> None:
        super().__init__()
        self.moment, self.handler = moment, handler

    def __enter__(self) -> None:
        self._previous = signal.signal(signal.SIGINT, self._handle)
        super().__enter__()

    def __exit__(self, *exception: object) -> None:
        super().__exit__()
        signal.signal(signal.SIGINT, self._previous)

    def _handle(self, *_: Any) -> None:
        sys.settrace(None)
        self.handler()

    def trace(self, moment: Moment) -> Any:
        return _send if moment == self.moment else self._follow
