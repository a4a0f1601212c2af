"""A run's identity: what its numbers depend on, how to read them, and the ids made from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dab.benchmark.cell import changed_options
from dab.streams import Setting
from dab.utils.typed_json import canonical, from_json, to_json

__all__ = [
    "FORMAT",
    "ComputeCard",
    "DataCard",
    "FormatError",
    "ModelCard",
    "RunCard",
    "ShardCard",
]

FORMAT = 3  # of cards, results and checkpoints; those of format 1 do not say so


class FormatError(ValueError):
    """The file was written by a version of dab that used another format."""


@dataclass(frozen=True)
class DataCard:
    """The images of a stream."""

    name: str
    images: str  # fingerprint of all images and labels
    samples: int  # in this run, or, of a sharded stream taken together, in all its pieces
    domains: tuple[str, ...]
    severity: int


@dataclass(frozen=True)
class ModelCard:
    """The source model."""

    name: str
    weights: str  # their fingerprint
    details: Mapping[str, Any]  # what its library says of it: preprocessing, tag, classes ...


@dataclass(frozen=True)
class ComputeCard:
    """What the run computes on."""

    device: str  # the type, not which one of several
    precision: str
    compile: bool
    threads: int | None = None  # on a CPU, where the last bits depend on it


@dataclass(frozen=True)
class ShardCard:
    """One piece of a stream that is split over several adapters, or all pieces together."""

    pieces: int
    kind: str
    number: int | None = None  # from 0; None: all pieces together
    images: Mapping[str, int] | None = None  # of this piece, by domain

    def __str__(self) -> str:
        if self.number is None:
            return f"{self.pieces} {self.kind} pieces"
        return f"{self.kind} piece {self.number + 1} of {self.pieces}"


@dataclass(frozen=True)
class RunCard:
    """Everything that the numbers of a run depend on, and what they are compared with.

    The latter cannot change a number and is in no id: `source_error`, `published_as`, and the
    version of dab, whose code is covered by `code`.

    >>> card = RunCard(
    ...     method="tent", code="0a", options={"lr": 1e-3}, setting="mixed", seed=0, batch_size=64,
    ...     data=DataCard("glyphs", "1b", 9, ("fog",), 5),
    ...     model=ModelCard("dab/glyphs", "2c", {}), compute=ComputeCard("cpu", "fp32", False, 1),
    ...     versions={}, source_error=50.0, source_images=None, published_as=None,
    ... )
    >>> RunCard.from_json(card.to_json()) == card
    True
    >>> replace(card, seed=1).run_id == card.run_id, replace(card, seed=1).group_id == card.group_id
    (False, True)
    >>> replace(card, source_error=49.0).run_id == card.run_id
    True
    """

    method: str
    code: str  # fingerprint of all code that can change the numbers; see `results.code`
    options: Mapping[str, Any]
    data: DataCard
    model: ModelCard
    compute: ComputeCard
    setting: str
    seed: int
    batch_size: int
    versions: Mapping[str, str]
    source_error: float | None  # in %; None: this is the source run itself
    source_images: str | None  # fingerprint of the training images that the method is given
    published_as: str | None  # column of the published tables that the run belongs to
    shard: ShardCard | None = None
    format: int = FORMAT

    @classmethod
    def from_json(cls, found: Any) -> RunCard:
        """The card in parsed JSON; a `ValueError` names a field that is wrong."""
        if isinstance(found, Mapping) and found.get("format") != FORMAT:
            written = found.get("format")
            is_newer = type(written) is int and written > FORMAT
            raise FormatError(f"written by {'a newer' if is_newer else 'an older'} version of dab")
        card = from_json(cls, found)
        if not card.data.domains:
            raise ValueError("data.domains must not be empty")
        Setting.parse(card.setting)
        return card

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = to_json(self)
        return found

    def _hashed(self) -> dict[str, Any]:
        """What can change a number."""
        card = self.to_json()
        del card["source_error"], card["published_as"]
        card["versions"].pop("dab", None)
        return card

    @cached_property
    def run_id(self) -> str:
        """The name of the run's folder: a hash of everything that can change its numbers."""
        return _hash(self._hashed())

    @cached_property
    def group_id(self) -> str:
        """The same for runs that differ only in the seed; pieces of a stream count as one run."""
        card = self.without_shard()._hashed()
        return _hash({k: v for k, v in card.items() if k != "seed"})

    @cached_property
    def stream_id(self) -> str:
        """The same for runs of any method and seed on the same kind of stream and model."""
        card = self.without_shard()._hashed()
        return _hash({k: card[k] for k in ("data", "model", "setting", "batch_size", "shard")})

    @cached_property
    def source_id(self) -> str:
        """The same for a run and the source run that it is compared with."""
        card = self.without_shard()._hashed()
        own = ("method", "code", "options", "source_images")
        return _hash({k: v for k, v in card.items() if k not in own})

    def without_shard(self) -> RunCard:
        """What all pieces of a sharded stream have in common; any other card as it is.

        The number of images and the source model's error differ between pieces, and are 0.
        """
        if self.shard is None:
            return self
        return replace(
            self,
            shard=ShardCard(self.shard.pieces, self.shard.kind),
            data=replace(self.data, samples=0),
            source_error=None if self.is_source else 0.0,
        )

    @property
    def is_source(self) -> bool:
        """Whether this is the run that others on the stream are compared with."""
        return self.source_error is None

    @property
    def is_piece(self) -> bool:
        """Whether the run saw one piece of a sharded stream."""
        return self.shard is not None and self.shard.number is not None

    @property
    def capacity(self) -> int | None:
        """Images in the method's buffer, if it has one."""
        capacity: int | None = self.options.get("capacity")
        return capacity

    @property
    def setting_title(self) -> str:
        """The setting as tables show it: "mixed", or "mixed, 3 consecutive pieces"."""
        return self.setting if self.shard is None else f"{self.setting}, {self.shard}"

    def changed_options(self) -> dict[str, Any]:
        """Options that differ from the defaults; all if the method is not registered."""
        return changed_options(self.method, self.options)


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()[:20]
