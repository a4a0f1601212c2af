"""What a run's output correction did, small enough for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dab.report.buffer_view import Trace

__all__ = ["CorrectionView", "Shares", "Span", "correction_view"]


@dataclass(frozen=True)
class Span:
    """Consecutive images of the stream: what they show, and what was predicted."""

    start: int  # images seen before
    labels: tuple[int, ...]
    before: tuple[int, ...]  # predictions before the correction
    after: tuple[int, ...]
    error_before: float  # in %
    error_after: float


@dataclass(frozen=True)
class Shares:
    """What the correction relied on at the moments `at`, in %."""

    at: tuple[int, ...]  # images seen
    names: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]  # of each name


@dataclass(frozen=True)
class CorrectionView:
    """The output correction of one run over time."""

    spans: tuple[Span, ...]
    shares: Shares | None  # None: it has nothing to distinguish


def correction_view(trace: Trace) -> CorrectionView | None:
    """What a trace says about the output correction; None if there was none."""
    if "spans" not in trace:
        return None
    rows = trace["spans"]
    pieces = np.split(rows, np.flatnonzero(np.diff(rows[:, 0]) != 1) + 1)
    return CorrectionView(tuple(map(_span, pieces)), _shares(trace) if "shares" in trace else None)


def _span(rows: NDArray[Any]) -> Span:
    places, labels, before, after = rows.T
    return Span(
        start=int(places[0]),
        labels=tuple(labels.tolist()),
        before=tuple(before.tolist()),
        after=tuple(after.tolist()),
        error_before=100 * float((before != labels).mean()),
        error_after=100 * float((after != labels).mean()),
    )


def _shares(trace: Trace) -> Shares:
    return Shares(
        tuple(trace["shares_at"].tolist()),
        tuple(trace["share_names"].tolist()),
        tuple(map(tuple, (trace["shares"].T / 10).tolist())),
    )
