"""The traces of a folder's runs; a damaged one is named and left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from dab.benchmark.results.result import Problem
from dab.report.buffer_view import TRACE, BufferView, buffer_view, read_trace
from dab.report.correction_view import CorrectionView, correction_view
from dab.utils import files
from dab.utils.files import Location
from dab.utils.typed_json import to_json

__all__ = ["Traces"]

T = TypeVar("T")


class Traces:
    """Reads traces by the names of their runs, and remembers which could not be read."""

    def __init__(self, out: Location) -> None:
        self.out = out
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems.values())

    def domain_sizes(self, name: str) -> tuple[int, ...] | None:
        """Images of each domain, if the run recorded them."""
        return self._read(name, _domain_sizes)

    def buffer_view(self, name: str) -> tuple[int, BufferView] | None:
        """The run's buffer, and how many characters it takes on a page."""
        return self._read(name, _buffer_view)

    def correction_view(self, name: str) -> tuple[int, CorrectionView] | None:
        """The run's output correction, and how many characters it takes on a page."""
        return self._read(name, _correction_view)

    def _read(self, name: str, read: Callable[[Location, tuple[int, ...]], T | None]) -> T | None:
        folder = self.out / name
        try:
            return read(folder, files.version(folder / TRACE))
        except FileNotFoundError:
            return None
        except Exception as error:  # arrays can be damaged in many ways
            reason = f"{TRACE} is damaged ({error}), what it recorded is not shown: remove it"
            self._problems[name] = Problem(str(folder), reason)
            return None


@lru_cache(maxsize=512)
def _domain_sizes(folder: Location, version: tuple[int, ...]) -> tuple[int, ...] | None:
    trace = read_trace(folder)
    return tuple(trace["domain_sizes"].tolist()) if "domain_sizes" in trace else None


@lru_cache(maxsize=512)
def _buffer_view(folder: Location, version: tuple[int, ...]) -> tuple[int, BufferView] | None:
    return _measured(buffer_view(read_trace(folder)))


@lru_cache(maxsize=512)
def _correction_view(
    folder: Location, version: tuple[int, ...]
) -> tuple[int, CorrectionView] | None:
    return _measured(correction_view(read_trace(folder)))


def _measured(view: T | None) -> tuple[int, T] | None:
    return None if view is None else (len(json.dumps(to_json(view))), view)
