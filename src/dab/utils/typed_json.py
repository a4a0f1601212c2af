"""Dataclasses to and from JSON, with every field checked by its type."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["canonical", "from_json", "parse", "to_json"]

DEEPEST = 32  # levels of lists and objects

T = TypeVar("T")


def from_json(cls: type[T], value: Any, path: str = "") -> T:
    """A dataclass from parsed JSON; raises a `ValueError` that names the first bad field.

    Understands str, int, float, bool, None, Any, unions, tuples and mappings with str keys, and
    dataclasses nested in them.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     name: str
    ...     place: tuple[float, ...] = ()
    >>> from_json(Point, {"name": "a", "place": [0.5]})
    Point(name='a', place=(0.5,))
    >>> from_json(Point, {"name": "a", "place": [0.5, "b"]})
    Traceback (most recent call last):
    ValueError: place[1] must be a finite number, got 'b'
    """
    if not isinstance(value, Mapping):
        raise _wrong(path or cls.__name__, "an object", value)
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for name in value:
        if name not in known:
            raise ValueError(f"unknown field {_join(path, name)}")
    found = {}
    for name, field in known.items():
        if name in value:
            found[name] = _checked(hints[name], value[name], _join(path, name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"missing field {_join(path, name)}")
    return cls(**found)


def to_json(value: Any) -> Any:
    """A dataclass, with all that it contains, as plain JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(item) for item in value]
    return value


def canonical(value: Any) -> str:
    """The one text of a JSON value, whatever the order of its keys: what hashes are made of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse(text: str | bytes) -> Any:
    """Strict JSON: a `ValueError` for NaN, infinities and nesting that is too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [item for outer in level for item in _items(outer)]
    if level:
        raise ValueError("nested too deeply")
    return value


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def _checked(hint: Any, value: Any, path: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        (hint,) = [option for option in inner if option is not NoneType]
        return _checked(hint, value, path)
    if is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        return from_json(hint, value, path)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(path, "a list", value)
        return tuple(_checked(inner[0], item, f"{path}[{n}]") for n, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise _wrong(path, "an object", value)
        return {name: _checked(inner[1], item, _join(path, name)) for name, item in value.items()}
    if hint is float:
        if type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not float or not math.isfinite(value):
            raise _wrong(path, "a finite number", value)
        return value
    if type(value) is not hint:  # True is not an int here
        raise _wrong(path, f"of type {hint.__name__}", value)
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _wrong(path: str, wanted: str, value: Any) -> ValueError:
    text = repr(value)
    return ValueError(f"{path} must be {wanted}, got {text[:60]}{'...' if len(text) > 60 else ''}")
