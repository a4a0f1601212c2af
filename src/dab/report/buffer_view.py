"""What a run's buffer held over time, small enough for a page."""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dab.utils import files
from dab.utils.files import Location

__all__ = [
    "TRACE",
    "BufferView",
    "Looks",
    "Sheet",
    "Shot",
    "Trace",
    "buffer_view",
    "read_trace",
]

TRACE = "trace.npz"
LARGEST = 256 * 2**20  # bytes of a trace; most have a few MB
WINDOWS = 60  # into which a stream is split to measure rates

Trace = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Sheet:
    """Images side by side, eight per row."""

    labels: tuple[int, ...]
    classes: int  # distinct labels
    image: str  # a data URI


@dataclass(frozen=True)
class Shot:
    """One moment: the batch that the stream showed, and what the buffer held."""

    at: int  # images seen
    batch: Sheet
    buffer: Sheet


@dataclass(frozen=True)
class Looks:
    """The buffer's classes and ages at the moments `at`."""

    at: tuple[int, ...]  # images seen
    classes: int
    ages: tuple[tuple[int, ...], ...]  # youngest, quartiles, oldest; 0 for an empty buffer
    buffer_variety: tuple[float, ...]  # in equally frequent classes
    batch_variety: tuple[float, ...]
    mean_buffer_variety: float  # while the buffer is not empty
    mean_batch_variety: float
    buffer_classes: str  # data URI of an image: a row per class, counts as gray levels
    batch_classes: str
    shots: tuple[Shot, ...]


@dataclass(frozen=True)
class BufferView:
    """The buffer of one run over time."""

    at: tuple[int, ...]  # images seen at the end of each window
    fill: tuple[int, ...]
    admitted: tuple[float, ...]  # images of the window, in %
    updated: tuple[float, ...]  # calls of the window, in %
    looks: Looks | None  # None: not recorded


def read_trace(folder: Location) -> dict[str, NDArray[Any]]:
    """The arrays that a run recorded."""
    content = io.BytesIO(files.read(folder / TRACE, LARGEST))
    if not zipfile.is_zipfile(content):
        raise ValueError("not an archive of arrays")
    content.seek(0)
    return dict(np.load(content, allow_pickle=False))


def buffer_view(trace: Trace) -> BufferView | None:
    """What a trace says about the buffer; None if the method has no buffer."""
    if "fill" not in trace or not trace["fill"].any():
        return None
    calls = len(trace["samples"])
    step = max(1, round(calls / WINDOWS))
    # The remainder is a window of its own only if it is long enough to measure a rate.
    starts = np.arange(0, max(1, calls - step // 2), step)
    ends = np.append(starts[1:], calls) - 1
    samples = np.add.reduceat(trace["samples"], starts)
    admitted = np.add.reduceat(trace["admitted"], starts) / samples
    updated = np.add.reduceat(trace["updated"], starts) / np.diff([*starts, calls])
    return BufferView(
        at=tuple(np.cumsum(trace["samples"])[ends].astype(int).tolist()),
        fill=tuple(trace["fill"][ends].astype(int).tolist()),
        admitted=_rounded(100 * admitted, 1),
        updated=_rounded(100 * updated, 1),
        looks=_looks(trace) if "look_at" in trace else None,
    )


def _looks(trace: Trace) -> Looks:
    held, shown = trace["buffer_classes"], trace["batch_classes"]
    buffer, batch = effective_classes(held), effective_classes(shown)
    return Looks(
        at=tuple(trace["look_at"].tolist()),
        classes=held.shape[1],
        ages=tuple(map(tuple, np.maximum(0, trace["buffer_ages"]).tolist())),
        buffer_variety=_rounded(buffer, 2),
        batch_variety=_rounded(batch, 2),
        mean_buffer_variety=float(buffer[buffer > 0].mean()) if buffer.any() else 0.0,
        mean_batch_variety=float(batch.mean()),
        buffer_classes=_gray(held.T),
        batch_classes=_gray(shown.T),
        shots=tuple(
            Shot(at, _sheet(trace, "batch", number), _sheet(trace, "buffer", number))
            for number, at in enumerate(trace["shot_at"].tolist())
        ),
    )


def _rounded(values: NDArray[Any], digits: int) -> tuple[float, ...]:
    return tuple(round(value, digits) for value in values.tolist())


def effective_classes(counts: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """The number of equally frequent classes with the same entropy, for each row of counts.

    >>> effective_classes(np.array([[4, 4, 4, 0], [12, 0, 0, 0], [0, 0, 0, 0]])).round(6).tolist()
    [3.0, 1.0, 0.0]
    """
    total = counts.sum(axis=1, keepdims=True)
    p = counts / np.maximum(1, total)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1)
    return np.where(total[:, 0] > 0, np.exp(entropy), 0.0)


def _gray(counts: NDArray[np.integer[Any]]) -> str:
    """Counts as the gray levels of an image, at most 255; the page reads them back."""
    from PIL import Image

    return _uri(Image.fromarray(np.minimum(counts, 255).astype(np.uint8)), "png")


def _sheet(trace: Trace, kind: str, number: int) -> Sheet:
    from PIL import Image

    labels = tuple(label for label in trace[f"{kind}_labels"][number].tolist() if label >= 0)
    images = trace[f"{kind}_images"][number, : len(labels)]
    count, height, width, bands = images.shape
    rows = max(1, -(-count // 8))
    full = np.zeros((rows * 8, height, width, bands), np.uint8)
    full[:count] = images
    grid = full.reshape(rows, 8, height, width, bands).swapaxes(1, 2)
    sheet = Image.fromarray(grid.reshape(rows * height, 8 * width, bands))
    return Sheet(labels, len(set(labels)), _uri(sheet, "webp", quality=70))


def _uri(image: Any, kind: str, **options: Any) -> str:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
