"""What happens to a request before it reaches the model, wherever that is."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from torch import Tensor

from dab.serve.errors import BusyError
from dab.serve.limits import Limits
from dab.serve.metrics import Metrics
from dab.serve.status import Status

__all__ = ["Backend", "Overview", "Prediction"]

Found = TypeVar("Found")

DECODERS = 4  # threads that decode images; they do not hold Python's lock while they do


@dataclass(frozen=True)
class Prediction:
    """The logits of a request, and its stream after it."""

    logits: Tensor
    status: Status


@dataclass(frozen=True)
class Overview:
    """All streams."""

    statuses: Collection[Status]
    saved: Collection[str]  # in the folder, and not seen yet


class Backend(ABC):
    """What the routes ask, and what they need for that.

    Args:
        limits: how much is accepted.
    """

    def __init__(self, limits: Limits | None) -> None:
        self.limits = limits or Limits()
        self.metrics = Metrics()
        self._in_progress = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._decoders = ThreadPoolExecutor(DECODERS, "dab-decoder")

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Counts a request; raises `BusyError` if too many are in progress."""
        if self._in_progress >= self.limits.queue:
            raise BusyError(f"{self.limits.queue} requests are in progress")
        self._in_progress += 1
        self.metrics.in_progress.inc()
        try:
            yield
        finally:
            self._in_progress -= 1
            self.metrics.in_progress.dec()

    async def prepare(self, function: Callable[[], Found]) -> Found:
        """Call a function, which decodes what a client has sent, in another thread."""
        return await asyncio.get_running_loop().run_in_executor(self._decoders, function)

    def turn(self, stream: str) -> asyncio.Lock:
        """Held while a request of a stream must not be overtaken: first come, first served."""
        return self._turns.setdefault(stream, asyncio.Lock())

    def close(self) -> None:
        """The end: nothing is asked any more."""
        self._decoders.shutdown()

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether requests will be answered."""

    @abstractmethod
    async def predict(self, stream: str, images: Callable[[], Tensor]) -> Prediction:
        """Predict and adapt. Requests of one stream are answered in the order of these calls.

        Args:
            stream: its name.
            images: decodes them; called in another thread.
        """

    @abstractmethod
    async def overview(self) -> Overview:
        """All streams."""

    @abstractmethod
    async def details(self, stream: str) -> dict[str, Any]:
        """All that is known about a stream; `UnknownStreamError` if there is none."""

    @abstractmethod
    async def forget(self, stream: str) -> None:
        """Back to the source; `UnknownStreamError` if there is none."""

    @abstractmethod
    async def exposition(self) -> bytes:
        """The metrics in the format of Prometheus."""
