"""A service that shares its folder with others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from prometheus_client.core import Metric

from dab.fleet import Fleet
from dab.serve.backend import Prediction
from dab.serve.batcher import Request
from dab.serve.limits import Limits
from dab.serve.service import Service
from dab.serve.shared_folder import SharedFolder

__all__ = ["SharedService"]

logger = logging.getLogger("dab.serve")


class SharedService(Service):
    """One of several services, which have different streams in memory.

    A stream belongs to this one from its first request until it is put aside or another one asks
    for it. `statuses` are those of its own streams.

    Args:
        fleet: the model and its streams.
        folder: of the fleet.
        limits: how much is accepted.
        save_every: updates of a stream after which it is saved.
    """

    def __init__(
        self, fleet: Fleet, folder: SharedFolder, *, limits: Limits, save_every: int
    ) -> None:
        self._folder = folder
        super().__init__(fleet, limits=limits, save_every=save_every)

    async def let_go(self, stream: str) -> None:
        """Save a stream, and leave it to others."""
        await self.ask(lambda fleet: self._put_aside(fleet, stream))

    def forgotten(self, stream: str) -> None:
        """Another one has forgotten a stream."""
        self.saved.discard(stream)

    def collect(self) -> list[Metric]:
        """All metrics."""
        return list(self.metrics.registry.collect())

    def close(self) -> None:
        super().close()
        self._folder.close()

    # In the model's thread.

    def _predict(self, requests: Sequence[Request[Prediction]]) -> list[Prediction]:
        for request in requests:
            self._take(self._fleet, request.stream)
        return super()._predict(requests)

    def _details(self, fleet: Fleet, stream: str) -> dict[str, Any]:
        self._take(fleet, stream)  # the owner knows more than the folder
        try:
            return super()._details(fleet, stream)
        finally:
            self._release()

    def _forget(self, fleet: Fleet, stream: str) -> None:
        self._take(fleet, stream)
        try:
            super()._forget(fleet, stream)
        finally:
            self._release()

    def _save_due(self) -> None:
        super()._save_due()
        self._release()

    def _put_aside(self, fleet: Fleet, stream: str) -> None:
        if stream in fleet.streams:
            fleet.put_aside(stream)
        self._release()

    def _take(self, fleet: Fleet, stream: str) -> None:
        if stream in fleet.streams and not self._folder.owns(stream):
            fleet.put_aside(stream)  # an old copy, which the folder does not write
        self._folder.take(stream)

    def _release(self) -> None:
        """Leave to others what is no longer in memory."""
        for stream in (self._folder.held.keys() | self.statuses.keys()) - {*self._fleet.streams}:
            try:
                self._folder.release(stream)
            except OSError:  # of the file system, which must not end the model's thread
                logger.exception("could not be released", extra={"stream": stream})
                continue  # until the next batch
            self._unsaved.pop(stream, None)
            if self.statuses.pop(stream, None) is not None:
                self.saved.add(stream)
