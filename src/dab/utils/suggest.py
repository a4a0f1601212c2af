"""Errors for names that do not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["closest", "unknown"]


def closest(name: str, available: Iterable[str]) -> str | None:
    """The most similar of the available names, if one is similar."""
    return next(iter(get_close_matches(name, available, n=1)), None)


def unknown(kind: str, name: str, available: Iterable[str]) -> str:
    """An error message that suggests the most similar name.

    >>> unknown("method", "tnet", ["dab", "tent"])
    "unknown method 'tnet'; did you mean 'tent'? available: dab, tent"
    """
    names = list(available)
    similar = closest(name, names)
    hint = f"did you mean {similar!r}? " if similar else ""
    return f"unknown {kind} {name!r}; {hint}available: {', '.join(names) or 'none'}"
