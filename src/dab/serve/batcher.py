"""One thread owns the model, and answers requests of different streams together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

__all__ = ["Batcher", "Request"]

Answer = TypeVar("Answer")
Found = TypeVar("Found")


@dataclass(eq=False)
class Request(Generic[Answer]):
    """Images of one stream, and the promise of their answer."""

    stream: str
    images: Tensor
    arrived: float = field(default_factory=time.monotonic)
    answer: Future[Answer] = field(default_factory=Future)


class Batcher(Generic[Answer]):
    """Collects requests for a moment, and runs them in one batch.

    A batch has at most one request of a stream, so batching changes no answer: each stream sees
    its requests one by one, in the order of `submit`.

    Args:
        run: answers a batch; called in the one thread. If it raises, the requests of the batch are
            run again one by one, so that a request fails on its own account only. It must have
            changed nothing then.
        after: called in the thread when a batch has been answered.
        largest: images in a batch; a single request may have more.
        wait: seconds that a request waits for others.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Request[Answer]]], Sequence[Answer]],
        *,
        after: Callable[[], None] = lambda: None,
        largest: int,
        wait: float,
    ) -> None:
        self._run, self._after = run, after
        self._largest, self._wait = largest, wait
        self._requests: deque[Request[Answer]] = deque()
        self._errands: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="dab-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests will be answered."""
        return self._thread.is_alive() and not self._closed

    def submit(self, stream: str, images: Tensor) -> Future[Answer]:
        """Queue a request. Its answer can be canceled until its batch starts."""
        request: Request[Answer] = Request(stream, images)
        self._add(lambda: self._requests.append(request))
        return request.answer

    def call(self, function: Callable[[], Found]) -> Future[Found]:
        """Call a function in the thread that owns the model, between two batches."""
        found: Future[Found] = Future()
        self._add(lambda: self._errands.append((function, found)))
        return found

    def close(self) -> None:
        """Answer what was submitted, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _add(self, append: Callable[[], None]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("the server is shutting down")
            append()
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._requests or self._errands or self._closed):
                    self._changed.wait()
                if not (self._requests or self._errands):
                    return
                errands = [self._errands.popleft() for _ in range(len(self._errands))]
                batch = [] if errands else self._collect()
            for function, found in errands:
                if found.set_running_or_notify_cancel():
                    _settle(found, function)
            batch = [one for one in batch if one.answer.set_running_or_notify_cancel()]
            if batch:
                self._answer(batch)
                self._after()

    def _collect(self) -> list[Request[Answer]]:
        """Wait for more requests unless the first has waited enough, and take a batch."""
        due = self._requests[0].arrived + self._wait
        while not (self._closed or self._errands or self._is_full()):
            if (left := due - time.monotonic()) <= 0:
                break
            self._changed.wait(left)
        batch, later = self._divided()
        self._requests = later
        return batch

    def _is_full(self) -> bool:
        return sum(len(request.images) for request in self._requests) >= self._largest

    def _divided(self) -> tuple[list[Request[Answer]], deque[Request[Answer]]]:
        """The next batch, and what remains."""
        batch: list[Request[Answer]] = []
        later: deque[Request[Answer]] = deque()
        streams: set[str] = set()
        room = self._largest
        for request in self._requests:
            if request.stream not in streams and (len(request.images) <= room or not batch):
                batch.append(request)
                room -= len(request.images)
            else:
                later.append(request)
            streams.add(request.stream)  # a later request of its stream has to wait too
        return batch, later

    def _answer(self, batch: list[Request[Answer]]) -> None:
        try:
            answers = self._run(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(error)
                return
            for request in batch:
                self._answer([request])
        else:
            for request, answer in zip(batch, answers, strict=True):
                request.answer.set_result(answer)


def _settle(found: Future[Any], function: Callable[[], Any]) -> None:
    try:
        result = function()
    except Exception as error:
        found.set_exception(error)
    else:
        found.set_result(result)
