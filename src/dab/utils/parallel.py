"""Work that worker processes share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

__all__ = ["each", "leave_interrupts_to_the_parent"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """The results for all items, in order, from this many processes; none: from this one.

    Torch's loader does it, since its workers notice when their parent dies, and it when they do.

    >>> list(each(abs, [-1, 2, -3], workers=0))
    [1, 2, 3]
    """
    loader = DataLoader(
        _Calls(function, items),
        batch_size=None,
        num_workers=min(workers, len(items)),
        collate_fn=_as_it_is,
        worker_init_fn=leave_interrupts_to_the_parent if workers else None,
        generator=torch.Generator(),  # or the loader would draw from the global one
    )
    for result in loader:
        if isinstance(result, _Failure):
            raise result.error
        yield result


def leave_interrupts_to_the_parent(worker: int) -> None:
    """Ctrl-C reaches all processes of a terminal; the parent ends the workers in good order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Failure(NamedTuple):
    """An error that speaks to the user: the loader would wrap it in a worker's traceback."""

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
