"""Lists the options that methods share on each method, with their types and its defaults."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from typing import Any

import griffe

from dab import Adapter, common

COMMON = re.compile(r"^ *\*\*common: .*\n?", re.MULTILINE)


class CommonOptions(griffe.Extension):
    """Puts them in the place of `**common`, in the signature and in the docstring."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if not cls.module.path.startswith("dab.methods."):
            return
        method = getattr(importlib.import_module(cls.module.path), cls.name)
        if not issubclass(method, Adapter):
            return
        taken = inspect.signature(method).parameters
        parameters = [
            griffe.Parameter(
                one.name,
                annotation=inspect.formatannotation(one.annotation).strip("'"),
                kind=griffe.ParameterKind[one.kind.name.lower()],
                default=None if one.default is one.empty else repr(one.default),
            )
            for one in taken.values()
        ]
        cls.set_member(
            "__init__", griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        )
        if cls.docstring:
            known = _descriptions()
            described = "".join(known[name] for name in taken if name in known)
            cls.docstring.value = COMMON.sub(described, cls.docstring.value)


def _descriptions() -> dict[str, str]:
    """The entry of each common option in a docstring, by its name."""
    found = {}
    for declared in (common.Training, common.Common, common.Basic):
        _, entries = inspect.cleandoc(declared.__doc__).split("Attributes:\n")
        for entry in re.split(r"^(?=\w)", textwrap.dedent(entries), flags=re.MULTILINE)[1:]:
            found[entry.partition(":")[0]] = textwrap.indent(entry.rstrip() + "\n", "    ")
    return found
