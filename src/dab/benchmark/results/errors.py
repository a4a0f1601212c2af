"""Errors by domain, by track and over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dab.streams import Stream

__all__ = ["error_of_tracks", "errors_by_domain", "errors_by_window", "window_size"]

WINDOWS = 150  # into which a stream is cut to show its error over time


def errors_by_domain(stream: Stream, wrong: NDArray[np.bool_]) -> dict[str, float]:
    """Wrong predictions in % of a domain's images, for all domains that have any."""
    counts = np.bincount(stream.domain, minlength=len(stream.domains))
    found = np.bincount(stream.domain, weights=wrong, minlength=len(stream.domains))
    errors = zip(stream.domains, counts.tolist(), found.tolist(), strict=True)
    return {domain: 100 * wrong / count for domain, count, wrong in errors if count}


def error_of_tracks(stream: Stream, predictions: NDArray[np.integer[Any]]) -> float | None:
    """Tracks in % whose most frequent prediction is wrong; None if the images are not videos.

    Of several predictions that are equally frequent, the lowest class counts.
    """
    if stream.tracks is None:
        return None
    _, track = np.unique(stream.tracks, return_inverse=True)
    classes = 1 + int(max(predictions.max(), stream.labels.max()))
    votes, truth = np.zeros((2, track.max() + 1, classes), np.int64)
    np.add.at(votes, (track, predictions), 1)
    np.add.at(truth, (track, stream.labels), 1)
    return float(100 * np.mean(votes.argmax(axis=1) != truth.argmax(axis=1)))


def errors_by_window(wrong: NDArray[np.bool_], window: int) -> list[float]:
    """Wrong predictions in % of each `window` images; the last one may be shorter."""
    starts = np.arange(0, len(wrong), window)
    sizes = np.diff(np.append(starts, len(wrong)))
    errors: list[float] = (100 * np.add.reduceat(wrong.astype(np.int64), starts) / sizes).tolist()
    return errors


def window_size(stream: Stream) -> int:
    """A multiple of the batch size that cuts the stream into about `WINDOWS` windows."""
    batches = max(1, round(stream.samples / WINDOWS / stream.batch_size))
    return batches * stream.batch_size
