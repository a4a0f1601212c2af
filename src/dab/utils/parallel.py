"""Maps a function over items in worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

__all__ = ["each", "leave_interrupts_to_the_parent", "usable_cores"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux may allow fewer cores than exist
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def each(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """Yields the results for all items in order, computed by `workers` processes (0: by this one).

    Uses torch's loader, because its workers notice when the parent dies, and the parent notices
    when a worker dies.

    >>> list(each(abs, [-1, 2, -3], workers=0))
    [1, 2, 3]
    """
    loader = DataLoader(
        _Calls(function, items),
        batch_size=None,
        num_workers=min(workers, len(items)),
        collate_fn=_as_it_is,
        worker_init_fn=leave_interrupts_to_the_parent if workers else None,
        generator=torch.Generator(),  # otherwise the loader draws from the global one
    )
    for result in loader:
        if isinstance(result, _Failure):
            raise result.error
        yield result


def leave_interrupts_to_the_parent(worker: int) -> None:
    """Ignores Ctrl-C, which reaches all processes of a terminal: the parent stops its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Failure(NamedTuple):
    """An error meant for the user: the loader would wrap it in a worker's traceback."""

    error: Exception


class _Calls(Dataset[Result | _Failure], Generic[Item, Result]):
    def __init__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> None:
        self.function, self.items = function, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Result | _Failure:
        try:
            return self.function(self.items[index])
        except (OSError, ValueError) as error:
            return _Failure(error)


def _as_it_is(result: Result) -> Result:
    return result
