"""Means over the seeds of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from dab.benchmark.results.published import Published, published
from dab.benchmark.results.result import Result
from dab.benchmark.results.shards import pooled
from dab.utils.text import assignments

__all__ = ["Row", "summarize"]


@dataclass(frozen=True)
class Row:
    """One method on one kind of stream, over all its seeds. Errors are in %."""

    data: str
    setting: str
    method: str
    capacity: int | None  # of the method's buffer, if it has one
    options: Mapping[str, Any]  # that differ from the defaults, without the capacity
    seeds: tuple[int, ...]
    error: float  # mean over the seeds
    deviation: float | None  # standard deviation over the seeds, if there are several
    errors: Mapping[str, float]  # by domain
    source_error: float
    update_rate: float
    images_per_second: float
    peak_memory_mib: float
    published: Published | None
    track_error: float | None = None  # of videos: mean over the seeds
    precision: str = "fp32"  # of matrix products and convolutions

    @property
    def name(self) -> str:
        """The method with its options, as they are written on the command line."""
        return " ".join([self.method, *assignments(self.options)])

    @property
    def worse_than_source(self) -> bool:
        """Whether the error is higher than the source model's, as rounded in tables."""
        return round(self.error, 1) > round(self.source_error, 1)


def summarize(results: Iterable[Result]) -> list[Row]:
    """A row for each method and stream, in order of first appearance."""
    groups: dict[str, dict[int, Result]] = defaultdict(dict)  # each with its seeds
    for result in pooled(results):
        groups[result.card.group_id][result.card.seed] = result
    return [_row([group[seed] for seed in sorted(group)]) for group in groups.values()]


def _row(group: list[Result]) -> Row:
    card = group[0].card
    errors = [result.error for result in group]
    return Row(
        data=card.data.name,
        setting=card.setting_title,
        method=card.method,
        capacity=card.capacity,
        options={name: v for name, v in card.changed_options().items() if name != "capacity"},
        seeds=tuple(result.card.seed for result in group),
        error=fmean(errors),
        deviation=stdev(errors) if len(errors) > 1 else None,
        errors={name: fmean(r.errors[name] for r in group) for name in group[0].errors},
        source_error=fmean(_source_error(result) for result in group),
        update_rate=fmean(result.update_rate for result in group),
        images_per_second=fmean(result.images_per_second for result in group),
        peak_memory_mib=max(result.peak_memory_mib for result in group),
        published=published(card.setting, card.method, card.capacity, card.published_as),
        track_error=_mean(result.track_error for result in group),
        precision=card.compute.precision,
    )


def _mean(errors: Iterable[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return fmean(known) if known else None


def _source_error(result: Result) -> float:
    known = result.card.source_error
    return result.error if known is None else known
