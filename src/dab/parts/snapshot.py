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


def restore(memory: Any, saved: Mapping[str, Any]) -> None:
    """Fill a fresh dataclass from a snapshot; a ValueError names the field that does not fit."""
    check_names(saved, [field.name for field in fields(memory)])
    hints = get_type_hints(type(memory), include_extras=True)
    for name, value in saved.items():
        fresh = getattr(memory, name)
        if hasattr(fresh, "load_state_dict"):
            if value is not None:  # a buffer that was left out stays empty
                fresh.load_state_dict(value)
            continue
        Option(name, hints[name]).check(value)
        if isinstance(fresh, Tensor) and value.shape != fresh.shape:
            raise ValueError(f"{name} is not a tensor of shape {tuple(fresh.shape)}")
        copied = _copied(value)
        setattr(memory, name, copied.to(fresh.device) if isinstance(fresh, Tensor) else copied)
