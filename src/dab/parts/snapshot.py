"""Saving and restoring what a method remembers of its stream, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from torch import Tensor

from dab.parts.options import Option
from dab.parts.validation import check_names

__all__ = ["restore", "snapshot"]


def snapshot(memory: Any) -> dict[str, Any]:
    """A copy of a dataclass of tensors, numbers and objects with a state_dict, as plain data."""
    return {field.name: _copied(getattr(memory, field.name)) for field in fields(memory)}


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return value.state_dict() if hasattr(value, "state_dict") else value


def restore(memory: Any, saved: Mapping[str, Any], classes: int, optional: Any = None) -> None:
    """Fill a fresh dataclass from a snapshot; a ValueError names the field that does not fit.

    A tensor that starts as None has one number for each class. Of the parts, only the `optional`
    one may have been left out, and stays as it is.
    """
    check_names(saved, [field.name for field in fields(memory)])
    hints = get_type_hints(type(memory), include_extras=True)
    for name, value in saved.items():
        fresh = getattr(memory, name)
        if hasattr(fresh, "load_state_dict"):
            if value is not None:
                _load(name, fresh, value)
            elif fresh is not optional:
                raise ValueError(f"{name} is missing")
            continue
        copied = _copied(Option(name, hints[name]).check(value))
        shape = tuple(fresh.shape) if isinstance(fresh, Tensor) else (classes,)
        if isinstance(copied, Tensor) and copied.shape != shape:
            raise ValueError(f"{name} is not a tensor of shape {shape}")
        setattr(memory, name, copied.to(fresh.device) if isinstance(fresh, Tensor) else copied)
    if hasattr(memory, "check"):
        memory.check()


def _load(name: str, part: Any, state: Any) -> None:
    try:
        part.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
