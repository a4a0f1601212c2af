"""What came out of a run, and where it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dab.utils import files
from dab.utils.files import Location
from dab.streams import Setting, Stream

__all__ = ["Result", "key", "read_json", "results"]

FILE = "result.json"
WINDOWS = 150  # into which a stream is cut to see its error over time

# What every card has, whichever version wrote it, by the names on the way to it.
Paths: TypeAlias = "dict[tuple[str, ...], type | tuple[type, ...]]"
CARD: Paths = {
    ("method",): str,
    ("options",): dict,
    ("data", "name"): str,
    ("data", "samples"): int,
    ("data", "domains"): list,
    ("data", "severity"): int,
    ("model", "name"): str,
    ("setting",): str,
    ("seed",): int,
    ("batch_size",): int,
    ("source_error",): (float, int, type(None)),
}
PIECE: Paths = {
    ("shard", "number"): int,
    ("shard", "pieces"): int,
    ("shard", "kind"): str,
    ("shard", "images"): dict,
}


@dataclass(frozen=True)
class Result:
    """The figures of a finished run. Errors are in %.

    All but the last three are the same to the bit whenever and however often interrupted the run
    is made; those three are measured.
    """

    card: Mapping[str, Any]
    error: float  # plain mean over the domains
    errors: Mapping[str, float]  # by domain
    window: int  # images in a window
    windows: list[float]  # error over time
    predictions: str  # a hash of every single prediction
    updates: int
    update_rate: float  # share of the calls that updated
    admitted: int
    skipped: int  # calls that learned nothing because a number was not finite
    seconds: float  # of processor time in the adapter
    images_per_second: float  # of processor time
    peak_memory_mib: float  # resident, of the process

    def write(self, folder: Location) -> None:
        files.write(folder / FILE, json.dumps(asdict(self), indent=1))

    @staticmethod
    def exists(folder: Location) -> bool:
        """Whether the run in a folder has finished."""
        return (folder / FILE).exists()

    @classmethod
    def read(cls, folder: Location) -> Result | None:
        """The result in a folder, or None if its run has not finished."""
        file = folder / FILE
        if not cls.exists(folder):
            return None
        try:
            return cls(**read_json(file))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file} is damaged ({error}): remove it to run it again") from error


def read_json(file: Location) -> dict[str, Any]:
    """What a run wrote about itself, with all that is needed of its card; else a `ValueError`."""
    found: dict[str, Any] = json.loads(file.read_text(), parse_constant=_refuse)
    card = found["card"] if isinstance(found, dict) and "card" in found else None
    if not isinstance(card, dict):
        raise ValueError("it has no identity card")
    for path, kind in (CARD | PIECE if "shard" in card else CARD).items():
        value: Any = card
        for name in path:
            value = value.get(name, ...) if isinstance(value, dict) else ...
        if not isinstance(value, kind):
            raise ValueError(f"its card has no usable {'.'.join(path)}")
    if not card["data"]["domains"]:
        raise ValueError("its card has no domains")
    Setting.parse(card["setting"])
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no figure")


def results(out: Location) -> Iterator[Result]:
    """All finished runs of a folder."""
    for file in files.found(out, f"*/{FILE}"):
        result = Result.read(file.parent)
        assert result is not None
        yield result


def key(card: Mapping[str, Any]) -> str:
    """The name of a run's folder: a hash of its identity card.

    >>> key({"method": "dab", "seed": 0}) == key({"seed": 0, "method": "dab"})
    True
    """
    canonical = json.dumps(card, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


def errors_by_domain(stream: Stream, wrong: NDArray[np.bool_]) -> dict[str, float]:
    """Wrong predictions in % of a domain's images, for all domains that have any."""
    counts = np.bincount(stream.domain, minlength=len(stream.domains))
    found = np.bincount(stream.domain, weights=wrong, minlength=len(stream.domains))
    errors = zip(stream.domains, counts.tolist(), found.tolist(), strict=True)
    return {domain: 100 * wrong / count for domain, count, wrong in errors if count}


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
