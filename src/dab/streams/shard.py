"""Pieces of a stream for independent adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kind", "Shard"]

Kind = Literal["interleaved", "consecutive"]


@dataclass(frozen=True)
class Shard:
    """One of several pieces of a stream, such as one camera, user or session.

    Args:
        number: of the piece, starting at 0.
        pieces: the number of pieces.
        kind: "interleaved": every `pieces`-th image; "consecutive": a contiguous run of images.

    >>> stream = np.arange(7)
    >>> [Shard(number, 3).take(stream).tolist() for number in range(3)]
    [[0, 3, 6], [1, 4], [2, 5]]
    >>> [shard.take(stream).tolist() for shard in Shard.parse("3:consecutive")]
    [[0, 1, 2], [3, 4], [5, 6]]
    """

    number: int
    pieces: int
    kind: Kind = "interleaved"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {get_args(Kind)}, got {self.kind!r}")
        if not 0 <= self.number < self.pieces:
            raise ValueError(f"number must be 0 to {self.pieces - 1}, got {self.number}")

    @classmethod
    def parse(cls, text: str) -> list[Shard]:
        """Returns all pieces described by PIECES or PIECES:KIND."""
        pieces, _, kind = text.partition(":")
        if not (pieces.isdecimal() and int(pieces) and kind in ("", *get_args(Kind))):
            raise ValueError(
                f"invalid pieces {text!r}; give a number from 1, optionally followed by "
                f"{' or '.join(f':{kind}' for kind in get_args(Kind))}"
            )
        chosen = cast(Kind, kind or "interleaved")
        return [cls(number, int(pieces), chosen) for number in range(int(pieces))]

    def __str__(self) -> str:
        return f"{self.kind} piece {self.number + 1} of {self.pieces}"

    def take(self, images: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the images of this piece, in order."""
        if len(images) < self.pieces:
            raise ValueError(f"cannot split {len(images)} images into {self.pieces} pieces")
        if self.kind == "interleaved":
            return images[self.number :: self.pieces]
        return np.array_split(images, self.pieces)[self.number]
