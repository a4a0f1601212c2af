"""Atomic calls: savepoints, and how to return to them.

A `Savepoint` is taken before anything changes, and is cheap: what changes by assignment needs a
reference, small bookkeeping a copy, and what changes in place (weights, stored images) is copied
just before it changes. A rollback can be repeated: if it is interrupted, the next one completes it.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import fields
from typing import Any, ClassVar, TypeVar, overload

import torch
from torch import Tensor

from dab.parts.locks import lock_of

__all__ = ["AtEnd", "Atomic", "Recorded", "Savepoint", "entry"]

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


class Recorded:
    """State that can return to a savepoint.

    This base class is for state that changes by assignment to attributes alone. What is changed in
    place has to be copied in `savepoint`, or, if that is large, just before it changes.
    """

    holds_samples: ClassVar[bool] = False  # then a step back to earlier weights leaves it alone

    def savepoint(self) -> Any:
        """Start recording; returns what `rollback` needs."""
        return dict(vars(self))

    def rollback(self, token: Any) -> None:
        """Return to the savepoint. May be called again after an interrupt."""
        vars(self).update(token)

    def release(self) -> None:
        """Stop recording; the savepoint is no longer needed."""


class AtEnd(AbstractContextManager[None]):
    """Calls a function at the end of a block, if that is reached: after an interrupt, a rollback.

    Not a generator with a `finally`. An interrupt may abandon one, which then lives as long as the
    exception, and undoes its changes when that is dropped: in the middle of a later call.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __exit__(self, *exception: object) -> None:
        self._end()


class Atomic:
    """What changes wholly or not at all: an adapter, by operations that are an `entry` each."""

    _savepoint: Savepoint | None = None  # while an operation has begun and not happened
    _calling: int | None = None  # the process that is inside an operation; see `entry`

    def _atomically(self, work: Callable[[], T], keep: bool = True) -> T:
        """Run `work`: all of its changes take effect, or none if it raises or `keep` is False."""
        self._calling = os.getpid()
        self._savepoint = savepoint = self._mark()
        try:
            result = work()
            if keep:
                self._savepoint = None  # this very assignment is when it happens
                savepoint.release()
            else:
                self._recover()
            return result
        finally:
            self._recover()

    def _mark(self) -> Savepoint:
        return Savepoint(self)

    def _recover(self) -> None:
        """Roll back a call that has not happened, if there is one.

        A second Ctrl-C waits until this is done, so that nobody sees half of it.
        """
        interrupted: KeyboardInterrupt | None = None
        while self._savepoint is not None:
            try:
                self._savepoint.rollback()
                self._savepoint = None
            except KeyboardInterrupt as interrupt:  # noqa: PERF203
                interrupted = interrupt
        if interrupted is not None:
            try:
                raise interrupted
            finally:
                del interrupted  # its traceback holds this frame


Method = TypeVar("Method", bound=Callable[..., Any])
T = TypeVar("T")


@overload
def entry(method: Method) -> Method: ...


@overload
def entry(*, after_detach: bool) -> Callable[[Method], Method]: ...


def entry(method: Any = None, *, after_detach: bool = False) -> Any:
    """A public method of an adapter: one at a time for each model, and without gradients.

    Completes an interrupted rollback first. A call from inside a running one, as from a signal
    handler or a forward hook, is refused: there is no consistent state to work on. So is a call
    after `detach`, unless the method leaves the model alone.
    """
    if method is None:
        return functools.partial(entry, after_detach=after_detach)

    @functools.wraps(method)
    def enter(self: Any, *arguments: Any, **named: Any) -> Any:
        # Both contexts are in C, so that no interrupt comes between what they do and the block. At
        # its end, the second one restores the grad mode too.
        with lock_of(self.model), torch._C._InferenceMode(False):
            torch._C._set_grad_enabled(False)
            if self._calling == os.getpid():  # a fork may have copied the flag alone
                raise RuntimeError(
                    f"{method.__name__}() was called inside a running call of this adapter, by a "
                    "signal handler, a hook or a finalizer: set a flag there, and do the work "
                    "(such as saving) after the call"
                )
            if self.borrowed.ended and not after_detach:
                raise RuntimeError("the model was returned by detach(): wrap it again to adapt it")
            try:
                self._recover()
                return _uncompiled(method)(self, *arguments, **named)
            finally:
                # Without a call, after which an interrupt might come and leave the flag set.
                self.__dict__["_calling"] = None

    return enter


@functools.cache
def _disabled(method: Callable[..., Any]) -> Callable[..., Any]:
    disabled: Callable[..., Any] = torch.compiler.disable(method)  # type: ignore[no-untyped-call]
    return disabled


def _uncompiled(method: Callable[..., Any]) -> Callable[..., Any]:
    """Under `torch.compile(adapter)`, bookkeeping runs as it is written; a compiled model stays so.

    If torch's compiler is not loaded, nothing is compiled, and loading it takes seconds.
    """
    return _disabled(method) if "torch._dynamo" in sys.modules else method


class Savepoint:
    """An adapter as it is now: its attributes, memory, parts, output correction and generator."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._attributes = {k: v for k, v in vars(adapter).items() if k != "_savepoint"}
        self._generator = adapter.generator.get_state()
        self._output = deepcopy(adapter.output)  # which knows what can be shared
        parts = [value for value in self._attributes.values() if isinstance(value, Recorded)]
        self._fields: dict[str, Any] = {}
        if adapter.memory is not None:
            for field in fields(adapter.memory):
                value = getattr(adapter.memory, field.name)
                self._fields[field.name] = _kept(value)
                if isinstance(value, Recorded):
                    parts.append(value)
        self._tokens = [(part, part.savepoint()) for part in parts]

    def rollback(self) -> None:
        """Restore everything."""
        with torch._C._InferenceMode(False):  # an interrupted model may have left another mode
            torch._C._set_grad_enabled(False)
            attributes = vars(self._adapter)
            for name in attributes.keys() - self._attributes.keys() - {"_savepoint"}:
                del attributes[name]
            attributes.update(self._attributes)
            for name, value in self._fields.items():
                setattr(self._adapter.memory, name, value)
            for part, token in self._tokens:
                part.rollback(token)
            self.rollback_output()
            self._adapter.generator.set_state(self._generator)
            self.release()

    def rollback_output(self) -> None:
        """Bring back the output correction alone: the same object, with a copy of its attributes,
        as there may be another attempt.
        """
        output = self._adapter.output = self._attributes["output"]
        if output is not None:
            vars(output).clear()
            vars(output).update(vars(deepcopy(self._output)))

    def release(self) -> None:
        """Drop the copies."""
        for part, _ in self._tokens:
            part.release()


def _kept(value: Any) -> Any:
    """A value of a memory's field that later changes cannot reach; parts look after themselves."""
    if isinstance(value, (Recorded, *_IMMUTABLE)):
        return value
    return value.clone() if isinstance(value, Tensor) else deepcopy(value)
