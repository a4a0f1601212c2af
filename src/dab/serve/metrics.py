"""Numbers for Prometheus."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dab.serve.status import STATES, Status

__all__ = ["Metrics"]

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

COUNTS: Mapping[str, tuple[str, Callable[[Status], int]]] = {
    "images": ("Images of a stream.", lambda status: status.images),
    "updates": ("Updates of a stream's parameters.", lambda status: status.updates),
    "rollbacks": ("Times that the guard stepped back.", lambda status: status.rollbacks),
    "skipped": ("Calls from which something was not learned.", lambda status: status.skipped),
}


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter = partial(Counter, registry=registry)
        seconds = partial(Histogram, buckets=SECONDS, registry=registry)
        sizes = partial(Histogram, buckets=SIZES, registry=registry)
        self.requests = counter("dab_requests", "Requests by route and code.", ["route", "code"])
        self.seconds = seconds("dab_request_seconds", "Time to answer a request.", ["route"])
        self.in_progress = Gauge(
            "dab_requests_in_progress", "Requests in progress.", registry=registry
        )
        self.waited = seconds("dab_queue_seconds", "Time that a request waits for its batch.")
        self.batch_images = sizes("dab_batch_images", "Images per batch.")
        self.batch_requests = sizes("dab_batch_requests", "Requests per batch.")
        self.batch_seconds = seconds("dab_batch_seconds", "Time of the model for a batch.")
        self.save_seconds = seconds("dab_save_seconds", "Time to save the streams that changed.")
        self.save_errors = counter("dab_save_errors", "Saves that failed.")
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def follow(self, statuses: Mapping[str, Status], *, most: int) -> None:
        """Report streams from now on: the first `most` one by one, the others as a sum."""
        self.registry.register(_Streams(statuses, most))


class _Streams(Collector):
    """What streams have done, read when Prometheus asks.

    The label of the sum over all other streams is empty, which the name of a stream never is.
    """

    def __init__(self, statuses: Mapping[str, Status], most: int) -> None:
        self._statuses, self._most = statuses, most

    def collect(self) -> Iterator[Metric]:
        found = list(self._statuses.values())  # in the order of their first request
        named, others = found[: self._most], found[self._most :]
        for name, (help_, count) in COUNTS.items():
            family = CounterMetricFamily(f"dab_stream_{name}", help_, labels=["stream"])
            for label, value in _sums(named, others, count):
                family.add_metric([label], value)
            yield family
        filled = GaugeMetricFamily(
            "dab_stream_buffer_images", "Images in a stream's buffer.", labels=["stream"]
        )
        for label, value in _sums(named, others, lambda status: status.buffered):
            filled.add_metric([label], value)
        yield filled
        errors = GaugeMetricFamily(
            "dab_stream_estimated_error", "Error as the guard estimates it.", labels=["stream"]
        )
        for status in named:
            if status.estimated_error is not None:
                errors.add_metric([status.stream], status.estimated_error)
        yield errors
        states = GaugeMetricFamily(
            "dab_stream_state", "1 for the state that a stream is in.", labels=["stream", "state"]
        )
        for status in named:
            states.add_metric([status.stream, status.state], 1)
        yield states
        tally = Tally(status.state for status in found)
        totals = GaugeMetricFamily("dab_streams", "Streams by state.", labels=["state"])
        for state in STATES:
            totals.add_metric([state], tally[state])
        yield totals


def _sums(
    named: Iterable[Status], others: Collection[Status], count: Callable[[Status], int]
) -> Iterator[tuple[str, int]]:
    for status in named:
        yield status.stream, count(status)
    if others:
        yield "", sum(map(count, others))
