"""Errors for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["unknown"]


def unknown(kind: str, name: str, available: Iterable[str]) -> str:
    """An error message that suggests the most similar name.

    >>> unknown("method", "tnet", ["dab", "tent"])
    "unknown method 'tnet'; did you mean 'tent'? available: dab, tent"
    """
    names = list(available)
    similar = get_close_matches(name, names, n=1)
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    return f"unknown {kind} {name!r}; {hint}available: {', '.join(names)}"
