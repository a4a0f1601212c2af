"""What a run's trace says about its buffer, small enough for a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dab.utils.files import Location

__all__ = ["inside", "read_trace"]

WINDOWS = 60  # into which a stream is cut to see its rates

Trace = Mapping[str, NDArray[Any]]


def read_trace(folder: Location) -> dict[str, NDArray[Any]]:
    """The arrays of a run, or none if it left none that can be read."""
    try:
        with (folder / "trace.npz").open("rb") as file:
            return dict(np.load(file, allow_pickle=False))
    except FileNotFoundError:
        return {}
    except Exception as error:  # zip files can be damaged in many ways
        raise ValueError(f"{folder / 'trace.npz'} is damaged ({error}): remove it") from error


def inside(trace: Trace) -> dict[str, Any] | None:
    """A buffer over time: fill, rates, classes, ages and what it showed. None if there is none."""
    if "fill" not in trace or not trace["fill"].any():
        return None
    found: dict[str, Any] = _rates(trace)
    if "look_at" in trace:
        held, shown = trace["buffer_classes"], trace["batch_classes"]
        found |= {
            "look_at": trace["look_at"].tolist(),
            "classes": held.shape[1],
            "ages": trace["buffer_ages"].tolist(),
            "buffer_balance": effective_classes(held),
            "batch_balance": effective_classes(shown),
            "buffer_classes": _gray(held.T),
            "batch_classes": _gray(shown.T),
        }
        found["shots"] = [
            {"at": at, "batch": _shot(trace, "batch", n), "buffer": _shot(trace, "buffer", n)}
            for n, at in enumerate(trace["shot_at"].tolist())
        ]
    return found


def _shot(trace: Trace, kind: str, number: int) -> dict[str, Any]:
    labels = [label for label in trace[f"{kind}_labels"][number].tolist() if label >= 0]
    return {"labels": labels, "sheet": _sheet(trace[f"{kind}_images"][number, : len(labels)])}


def _rates(trace: Trace) -> dict[str, Any]:
    """Fill at the end, and shares of images admitted and of calls that updated, by window."""
    calls = len(trace["samples"])
    step = max(1, round(calls / WINDOWS))
    # What is left over is a window of its own only if it is long enough for a rate.
    starts = np.arange(0, max(1, calls - step // 2), step)
    seen = np.cumsum(trace["samples"])
    ends = np.append(starts[1:], calls) - 1
    samples = np.add.reduceat(trace["samples"], starts)
    return {
        "at": seen[ends].astype(int).tolist(),
        "fill": trace["fill"][ends].astype(int).tolist(),
        "admitted": _rounded(np.add.reduceat(trace["admitted"], starts) / samples),
        "updated": _rounded(np.add.reduceat(trace["updated"], starts) / np.diff([*starts, calls])),
    }


def _rounded(values: NDArray[Any]) -> list[float]:
    return [round(value, 3) for value in values.tolist()]


def effective_classes(counts: NDArray[np.integer[Any]]) -> list[float]:
    """The number of equally frequent classes with the same entropy, for each row of counts.

    >>> effective_classes(np.array([[4, 4, 4, 0], [12, 0, 0, 0], [0, 0, 0, 0]]))
    [3.0, 1.0, 0.0]
    """
    total = counts.sum(axis=1, keepdims=True)
    p = counts / np.maximum(1, total)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1)
    return [round(value, 2) for value in np.where(total[:, 0] > 0, np.exp(entropy), 0).tolist()]


def _gray(counts: NDArray[np.integer[Any]]) -> str:
    """Counts as the gray levels of a picture, 255 and more as 255: the page reads them back."""
    from PIL import Image

    return _uri(Image.fromarray(np.minimum(counts, 255).astype(np.uint8)), "png")


def _sheet(images: NDArray[np.uint8]) -> str:
    """Images side by side, eight in a row."""
    from PIL import Image

    count, height, width, bands = images.shape
    rows = max(1, -(-count // 8))
    full = np.zeros((rows * 8, height, width, bands), np.uint8)
    full[:count] = images
    grid = full.reshape(rows, 8, height, width, bands).swapaxes(1, 2)
    sheet = Image.fromarray(grid.reshape(rows * height, 8 * width, bands))
    return _uri(sheet, "webp", quality=70)


def _uri(image: Any, kind: str, **options: Any) -> str:
    content = io.BytesIO()
    image.save(content, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
