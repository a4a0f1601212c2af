"""What a run tells other tools, and the tools by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.utils.files import Location
from dab.utils.registry import Registry

__all__ = ["LOGGERS", "Logger", "create_logger", "final_metrics", "register_logger"]


class Logger(Protocol):
    """Is told of one run after the other."""

    def start(self, card: RunCard, seen: int) -> None:
        """A run starts, or resumes after `seen` images."""

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        """The metrics of the last window, after `seen` images."""

    def finish(self, result: Result | None) -> None:
        """The run has finished, or was stopped if there is no result."""


Factory = Callable[[Path], Logger]
"""Creates a logger that writes into a folder; fails if its library is not installed."""

Kind = TypeVar("Kind", bound=Factory)

LOGGERS: Registry[Factory] = Registry("logger")


def register_logger(name: str) -> Callable[[Kind], Kind]:
    """Class decorator that makes a logger available under a name, for `dab bench --log NAME`."""
    return LOGGERS.register(name)


def create_logger(name: str, out: Location) -> Logger:
    """A logger by name, which writes into a folder of that name in the folder of results."""
    factory = LOGGERS[name]
    if not isinstance(out, Path):
        raise ValueError(f"{name} writes to local folders, not to {out}")
    return factory(out / name)


def final_metrics(result: Result) -> dict[str, float]:
    """The errors of a finished run by the names that loggers use."""
    return {"final/error": result.error} | {
        f"final/{domain}": error for domain, error in result.errors.items()
    }
