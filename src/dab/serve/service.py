"""What the server does, apart from how it is asked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from prometheus_client import generate_latest
from torch import Tensor

from dab.fleet import Fleet
from dab.parts.inputs import to_images
from dab.serve.backend import Backend, Overview, Prediction
from dab.serve.batcher import Batcher, Request
from dab.serve.errors import (
    FullError,
    ModelError,
    QueueTimeoutError,
    RefusedError,
    RunTimeoutError,
    UnknownStreamError,
)
from dab.serve.limits import Limits
from dab.serve.status import Status

__all__ = ["Service"]

logger = logging.getLogger("dab.serve")

Found = TypeVar("Found")

NAMED = 100  # streams that metrics report one by one


class Service(Backend):
    """Predicts for many streams at a time and saves what they learn.

    All that touches the fleet runs in the one thread of the batcher. `statuses` is what the rest
    of the server knows about streams; its values are replaced, never changed.

    Args:
        fleet: the model and its streams.
        limits: how much is accepted.
        save_every: updates of a stream after which it is saved to the fleet's folder; None: never.
    """

    def __init__(
        self, fleet: Fleet, *, limits: Limits | None = None, save_every: int | None = 10
    ) -> None:
        super().__init__(limits)
        self.statuses: dict[str, Status] = {}
        self.saved = set(fleet.aside)  # streams of earlier servers, not seen yet
        self.metrics.follow(self.statuses, most=NAMED)
        self._fleet, self._save_every = fleet, save_every
        self._unsaved: Counter[str] = Counter()  # updates since a stream was saved
        self._batcher: Batcher[Prediction] = Batcher(
            self._predict,
            after=self._save_due,
            largest=self.limits.images,
            wait=self.limits.wait,
        )

    @property
    def ready(self) -> bool:
        return self._batcher.alive

    async def predict(self, stream: str, images: Callable[[], Tensor]) -> Prediction:
        self._check_room(stream)
        async with self.turn(stream):
            batch = to_images(await self.prepare(images))
            answer = self._batcher.submit(stream, batch)
        waiting = asyncio.wrap_future(answer)
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), self.limits.timeout)
        except asyncio.TimeoutError:
            kind = QueueTimeoutError if answer.cancel() else RunTimeoutError
            raise kind(f"no answer within {self.limits.timeout:g} seconds") from None
        except asyncio.CancelledError:
            answer.cancel()  # the client is gone
            raise
        except RefusedError:
            raise
        except Exception as error:
            raise ModelError(f"the model could not answer: {error}") from error

    def _check_room(self, stream: str) -> None:
        known = len(self.statuses) + len(self.saved)
        if known >= self.limits.streams and not (stream in self.statuses or stream in self.saved):
            raise FullError(f"there are {known:,} streams, as many as allowed: DELETE others first")

    async def ask(self, function: Callable[[Fleet], Found]) -> Found:
        """Call a function with the fleet, between two batches."""
        found = self._batcher.call(lambda: function(self._fleet))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(found), self.limits.timeout)
        except asyncio.TimeoutError:
            raise QueueTimeoutError("the model is busy") from None
        except (OSError, ValueError) as error:  # of a saved state
            raise ModelError(str(error)) from error

    async def overview(self) -> Overview:
        return Overview(list(self.statuses.values()), set(self.saved))  # copies: both change

    async def exposition(self) -> bytes:
        return generate_latest(self.metrics.registry)

    async def details(self, stream: str) -> dict[str, Any]:
        return await self.ask(lambda fleet: self._details(fleet, stream))

    async def forget(self, stream: str) -> None:
        await self.ask(lambda fleet: self._forget(fleet, stream))

    def close(self) -> None:
        """Answer what was accepted, and save."""
        self._batcher.close()
        if self._save_every is not None:
            self._save()
        super().close()

    # In the model's thread.

    def _predict(self, requests: Sequence[Request[Prediction]]) -> list[Prediction]:
        started = time.monotonic()
        images = torch.cat([request.images for request in requests])
        streams = [request.stream for request in requests for _ in request.images]
        sizes = [len(request.images) for request in requests]
        parts = torch.split(self._fleet(images, streams=streams), sizes)
        answers = [
            Prediction(logits, self._look(request.stream))
            for request, logits in zip(requests, parts, strict=True)
        ]
        for request in requests:
            self.metrics.waited.observe(started - request.arrived)
        self.metrics.batch_images.observe(len(images))
        self.metrics.batch_requests.observe(len(requests))
        self.metrics.batch_seconds.observe(time.monotonic() - started)
        self._unsaved.update(answer.status.stream for answer in answers if answer.status.updated)
        return answers

    def _save_due(self) -> None:
        """Save the streams that have learned enough since they were saved."""
        every = self._save_every
        due = [stream for stream, updates in self._unsaved.items() if every and updates >= every]
        for stream in due:
            del self._unsaved[stream]
            self._save(stream)

    def _look(self, stream: str) -> Status:
        one = self._fleet.stream(stream)
        totals, last, buffer, health = one.totals, one.last, one.buffer, one.health
        status = Status(
            stream=stream,
            state="unguarded" if health is None else health.state,
            estimated_error=last.estimated_error,
            images=totals.samples,
            updates=totals.updates,
            rollbacks=totals.rollbacks,
            skipped=totals.skipped,
            buffered=0 if buffer is None else len(buffer),
            held=0 if buffer is None else len(set(buffer.labels)),
            updated=last.updated,
            doing=one.status,
            seen=time.time(),
        )
        before = self.statuses.get(stream)
        if before is not None and status.rollbacks > before.rollbacks:
            logger.warning("rolled back", extra={"stream": stream, "images": status.images})
        self.statuses[stream] = status
        self.saved.discard(stream)
        return status

    def _forget(self, fleet: Fleet, stream: str) -> None:
        if stream not in fleet:
            raise UnknownStreamError(f"there is no stream {stream!r}")
        fleet.reset(stream)
        self._unsaved.pop(stream, None)
        self.statuses.pop(stream, None)
        self.saved.discard(stream)

    def _save(self, stream: str | None = None) -> None:
        """Save a stream, or all that changed."""
        started = time.monotonic()
        try:
            if stream is None:
                self._fleet.save()
            elif stream in self._fleet:
                self._fleet.stream(stream).save()
        except Exception:  # a full disk must not end the service
            self.metrics.save_errors.inc()
            logger.exception("could not save", extra={"stream": stream})
        else:
            self.metrics.save_seconds.observe(time.monotonic() - started)

    def _details(self, fleet: Fleet, stream: str) -> dict[str, Any]:
        if stream not in fleet:
            raise UnknownStreamError(f"there is no stream {stream!r}")
        one = fleet.stream(stream)
        health, buffer = one.health, one.buffer
        held = [] if buffer is None else buffer.labels
        return {
            "stream": stream,
            "status": one.status,
            "health": None if health is None else asdict(health),
            "totals": asdict(one.totals),
            "buffer": {
                "images": len(held),
                "classes": dict(Counter(held).most_common()),
            },
        }
