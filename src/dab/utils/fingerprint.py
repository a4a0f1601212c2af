"""Hashes of texts and arrays."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fingerprint"]


def fingerprint(*content: str | NDArray[Any]) -> str:
    """Returns a hash of texts and arrays, short enough for the name of a folder."""
    digest = hashlib.sha256()
    for part in content:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
