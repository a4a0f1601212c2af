"""Methods by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from dab.adapter import Adapter
from dab.parts.options import check_options
from dab.utils.registry import Registry

__all__ = ["METHODS", "asks_for", "create", "method", "methods", "register"]

METHODS: Registry[type[Adapter]] = Registry("method")

Method = TypeVar("Method", bound=type[Adapter])


def register(name: str) -> Callable[[Method], Method]:
    """Class decorator that makes a method known to `create` and `methods` under a name."""

    def decorate(cls: Method) -> Method:
        METHODS.register(name)(cls)
        cls.name = name
        cls.title = cls.__dict__.get("title", cls.__name__)
        return cls

    return decorate


def methods() -> list[str]:
    """The names of all registered methods, sorted."""
    return METHODS.names()


def method(name: str) -> type[Adapter]:
    """The class registered under a name."""
    return METHODS[name]


def asks_for(name: str, argument: str) -> bool:
    """Whether a method takes an argument.

    >>> asks_for("tent", "source_images")
    False
    """
    return argument in inspect.signature(method(name)).parameters


def create(name: str, model: nn.Module, **options: Any) -> Adapter:
    """Wrap a model with the method of this name.

    >>> import dab
    >>> model = nn.Sequential(nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 10))
    >>> type(dab.create("dab", model, capacity=64)).__name__
    'DAB'
    >>> dab.create("dab", model, capactiy=64)
    Traceback (most recent call last):
    TypeError: dab has no option 'capactiy', did you mean 'capacity'? It has: capacity, ...
    """
    cls = method(name)
    return cls(model, **check_options(cls, options))
