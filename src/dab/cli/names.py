"""The names that options take, by the option's destination.

They are looked up when help or completion asks for them: the registries import the benchmark,
which needs packages that other commands do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

__all__ = ["NAMES"]


def _data() -> list[str]:
    from dab.benchmark.tasks import TASKS

    return TASKS.names()


def _engines() -> list[str]:
    from dab.benchmark.engines import ENGINES

    return ENGINES.names()


def _loggers() -> list[str]:
    from dab.benchmark.running.loggers import LOGGERS

    return LOGGERS.names()


def _suites() -> list[str]:
    from dab.benchmark.suites import SUITES

    return SUITES.names()


def _installed(names: Callable[[], list[str]]) -> Callable[[], list[str]]:
    def found() -> list[str]:
        with suppress(ImportError):
            return names()
        return []

    return found


NAMES: Mapping[str, Callable[[], list[str]]] = {
    "data": _installed(_data),
    "engine": _installed(_engines),
    "log": _installed(_loggers),
    "suite": _installed(_suites),
}
