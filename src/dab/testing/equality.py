"""Bit-exact equality of nested states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["same"]


def same(a: Any, b: Any) -> bool:
    """Whether two nested states are equal in structure, types and every bit.

    >>> same({"a": [torch.zeros(2)]}, {"a": [torch.zeros(2)]})
    True
    >>> same(torch.zeros(2), torch.zeros(2, dtype=torch.float64))
    False
    """
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b
