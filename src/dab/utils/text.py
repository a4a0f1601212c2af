"""Short texts about objects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["assignments", "summary"]


def assignments(options: Mapping[str, Any]) -> list[str]:
    """Options as they are written on the command line.

    >>> assignments({"capacity": 64, "lr": 0.1})
    ['capacity=64', 'lr=0.1']
    """
    return [f"{name}={value}" for name, value in options.items()]


def summary(described: Any) -> str:
    """The first line of a class's or function's docstring.

    >>> summary(summary)
    "The first line of a class's or function's docstring."
    """
    return (inspect.getdoc(described) or "").partition("\n")[0]
