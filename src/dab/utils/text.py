"""Short texts about objects."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["assignments", "parse_options", "summary"]


def assignments(options: Mapping[str, Any]) -> list[str]:
    """Options as they are written on the command line.

    >>> assignments({"capacity": 64, "lr": 0.1})
    ['capacity=64', 'lr=0.1']
    """
    return [f"{name}={value}" for name, value in options.items()]


def parse_options(text: str) -> tuple[str, dict[str, list[Any]]]:
    """A name with its options, as they are written on the command line, each with its values.

    >>> parse_options("dab capacity=64,256 lr=1e-3")
    ('dab', {'capacity': [64, 256], 'lr': [0.001]})
    """
    name, *settings = text.split() or [""]
    choices = {}
    for setting in settings:
        option, equals, values = setting.partition("=")
        if not (equals and values):
            raise ValueError(f"write an option as NAME=VALUE, got {setting!r}")
        if option in choices:
            raise ValueError(f"option {option!r} is given twice")
        choices[option] = [_value(value) for value in values.split(",")]
    return name, choices


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text  # a word


def summary(described: Any) -> str:
    """The first line of a class's or function's docstring.

    >>> summary(summary)
    "The first line of a class's or function's docstring."
    """
    return (inspect.getdoc(described) or "").partition("\n")[0]
