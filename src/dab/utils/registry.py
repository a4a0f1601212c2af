"""Things that users can add, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from dab.utils.suggest import unknown

__all__ = ["Registry"]

T = TypeVar("T")
Entry = TypeVar("Entry")


class Registry(Generic[T]):
    """Classes or functions of one kind, each registered under a name.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes.names(), shapes["circle"].__name__
    (['circle'], 'Circle')
    >>> shapes["cirlce"]
    Traceback (most recent call last):
    ValueError: unknown shape 'cirlce'; did you mean 'circle'? available: circle
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Decorator that registers a class or function under a name."""

        def decorate(entry: Entry) -> Entry:
            taken = self._entries.get(name)
            # A reloaded module defines its own entries again.
            if taken is not None and _home(taken) != _home(entry):
                raise ValueError(f"the {self.kind} {name!r} is already registered: {taken!r}")
            self._entries[name] = entry
            return entry

        return decorate

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Forgets at the end of the block what was registered inside it."""
        before = dict(self._entries)
        try:
            yield
        finally:
            self._entries = before

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise ValueError(unknown(self.kind, name, self.names()))
        entry: T = self._entries[name]
        return entry


def _home(entry: Any) -> tuple[Any, Any]:
    return getattr(entry, "__module__", None), getattr(entry, "__qualname__", repr(entry))
