"""How many bytes an object takes: the tensors and arrays that can be reached from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["nbytes"]


def nbytes(thing: Any, known: set[int]) -> int:
    """Bytes of all tensors and arrays inside; each memory once, and none that is `known`.

    Objects and memories that were found are added to `known`.

    >>> import torch
    >>> a = torch.zeros(4)
    >>> nbytes({"all": a, "half": a[:2]}, set())
    16
    """
    if isinstance(thing, Tensor):
        storage = thing.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
    elif isinstance(thing, np.ndarray):
        key, size = id(thing), thing.nbytes
    else:
        inner = _inside(thing)
        if not inner or id(thing) in known:
            return 0
        known.add(id(thing))
        return sum(nbytes(part, known) for part in inner)
    if key in known:
        return 0
    known.add(key)
    return size


def _inside(thing: Any) -> list[Any]:
    if isinstance(thing, Mapping):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | deque):
        return list(thing)
    if isinstance(thing, type | ModuleType):
        return []
    return list(vars(thing).values()) if hasattr(thing, "__dict__") else []
