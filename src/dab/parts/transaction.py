"""Atomic calls: savepoints, and how to return to them.

A `Savepoint` is taken before anything changes, and is cheap: what changes by assignment needs a
reference, small bookkeeping a copy, and what changes in place (weights, stored images) is copied
just before it changes. A rollback can be repeated: if it is interrupted, the next one completes it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from dab.parts.locks import lock_of

__all__ = ["Recorded", "Savepoint", "entry"]

_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


class Recorded:
    """State that can return to a savepoint.

    This base class is for state that changes by assignment to attributes alone. What is changed in
    place has to be copied in `savepoint`, or, if that is large, just before it changes.
    """

    def savepoint(self) -> Any:
        """Start recording; returns what `rollback` needs."""
        return dict(vars(self))

    def rollback(self, token: Any) -> None:
        """Return to the savepoint. May be called again after an interrupt."""
        vars(self).update(token)

    def release(self) -> None:
        """Stop recording; the savepoint is no longer needed."""


Method = TypeVar("Method", bound=Callable[..., Any])


def entry(method: Method) -> Method:
    """A public method of an adapter: one at a time for each model, and without gradients.

    First completes a rollback that was interrupted.
    """

    @functools.wraps(method)
    def enter(self: Any, *arguments: Any, **named: Any) -> Any:
        enabled = torch.is_grad_enabled()
        try:
            with lock_of(self.model), torch.inference_mode(False), torch.no_grad():
                self._recover()
                return _uncompiled(method)(self, *arguments, **named)
        except BaseException:
            torch._C._set_grad_enabled(enabled)  # an interrupt may come between mode and context
            raise

    return cast(Method, enter)


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
        self._output = deepcopy(adapter.output)
        parts = [value for value in self._attributes.values() if isinstance(value, Recorded)]
        self._fields: dict[str, Any] = {}
        if adapter.memory is not None:
            for field in fields(adapter.memory):
                value = getattr(adapter.memory, field.name)
                self._fields[field.name] = _kept(value)
                if isinstance(value, Recorded):
                    parts.append(value)
        self._tokens = [(part, part.savepoint()) for part in parts]

    @torch.inference_mode(False)
    @torch.no_grad()
    def rollback(self) -> None:
        """Restore everything."""
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
        """Restore only the output correction, from a copy: the rollback may be repeated."""
        self._adapter.output = deepcopy(self._output)

    def release(self) -> None:
        """Drop the copies."""
        for part, _ in self._tokens:
            part.release()


def _kept(value: Any) -> Any:
    """A value of a memory's field that later changes cannot reach; parts look after themselves."""
    if isinstance(value, (Recorded, *_IMMUTABLE)):
        return value
    return value.clone() if isinstance(value, Tensor) else deepcopy(value)
