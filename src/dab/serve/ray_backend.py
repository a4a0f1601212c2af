"""The backend of a server whose models are in other processes: replicas in a Ray cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException
from torch import Tensor

from dab.parts.inputs import to_images
from dab.serve.backend import Backend, Overview, Prediction
from dab.serve.errors import HeldError, LostError, RunTimeoutError
from dab.serve.limits import Limits
from dab.serve.status import Status

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

__all__ = ["RayBackend"]

AGAIN = 0.05  # seconds until a stream that another replica lets go of is asked for again
GRACE = 5.0  # seconds in addition to the time limit, which the replica keeps itself


class RayBackend(Backend):
    """Decodes images, and asks the replica that has the stream.

    Args:
        streams: the replicas. A stream's name is its session, which chooses the replica.
        fronts: all processes like this one, for their metrics.
        limits: how much is accepted.
    """

    def __init__(
        self, streams: DeploymentHandle[Any], fronts: DeploymentHandle[Any], limits: Limits
    ) -> None:
        super().__init__(limits)
        self._streams, self._fronts = streams, fronts

    @property
    def ready(self) -> bool:
        return self._streams.running_replicas_populated()

    async def predict(self, stream: str, images: Callable[[], Tensor]) -> Prediction:
        # The next request of the stream must not reach the replica first.
        async with self.turn(stream):
            batch = to_images(await self.prepare(images))
            found: Prediction = await self._ask(stream, "predict", batch)
        return found

    async def details(self, stream: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask(stream, "details")
        return found

    async def forget(self, stream: str) -> None:
        await self._ask(stream, "forget")
        await self._everywhere(self._streams, "forgotten", stream)

    async def overview(self) -> Overview:
        found: list[Overview] = await self._everywhere(self._streams, "overview")
        latest: dict[str, Status] = {}
        for status in sorted((s for one in found for s in one.statuses), key=lambda s: s.seen):
            latest[status.stream] = status
        saved = {stream for one in found for stream in one.saved}
        return Overview(list(latest.values()), saved - latest.keys())

    async def exposition(self) -> bytes:
        found: list[tuple[str, list[Metric]]] = [
            *await self._everywhere(self._fronts, "collect"),
            *await self._everywhere(self._streams, "collect"),
        ]
        registry = CollectorRegistry()
        registry.register(_Merged(found))
        return generate_latest(registry)

    async def _ask(self, stream: str, method: str, *arguments: Any) -> Any:
        """Ask the replica of a stream, until others have let go of it."""
        until = time.monotonic() + self.limits.timeout
        while True:
            try:
                return await self._ask_once(stream, method, *arguments)
            except HeldError as error:  # by one that had it when there were others
                if time.monotonic() > until:
                    raise
                await self._everywhere(self._streams, "let_go", stream, error.owner)
            await asyncio.sleep(AGAIN)

    async def _ask_once(self, stream: str, method: str, *arguments: Any) -> Any:
        replica = self._streams.options(method_name=method, session_id=stream)
        try:
            asked = replica.remote(stream, *arguments)
            return await asyncio.wait_for(asked, self.limits.timeout + GRACE)
        except asyncio.TimeoutError:
            raise RunTimeoutError("the replicas do not answer") from None
        except RayTaskError as error:
            raise error.cause from None
        except (RayError, RayServeException) as error:
            raise LostError(
                f"the replica with stream {stream!r} has died: try again, and the stream resumes "
                "from its last save on another one"
            ) from error

    async def _everywhere(self, handle: DeploymentHandle[Any], method: str, *arguments: Any) -> Any:
        """The answers of all replicas that live."""
        try:
            asked = handle.broadcast(method, *arguments)
            found = await asked.results_async(timeout_s=self.limits.timeout, return_exceptions=True)
        except (TimeoutError, RayServeException) as error:
            raise LostError(f"replicas do not answer, try again: {error}") from error
        return [answer for answer in found if not isinstance(answer, Exception)]


class _Merged(Collector):
    """The metrics of several processes, each with the label `replica`."""

    def __init__(self, found: Iterable[tuple[str, list[Metric]]]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for replica, metrics in self._found:
            for metric in metrics:
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                family.samples += [
                    sample._replace(labels={**sample.labels, "replica": replica})
                    for sample in metric.samples
                ]
        return families.values()
