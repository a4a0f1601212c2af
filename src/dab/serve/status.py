"""What is known about a stream without asking the model's thread."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["STATES", "Status"]

STATES = ("failed", "suspicious", "healthy", "unguarded")  # what needs attention comes first


@dataclass(frozen=True)
class Status:
    """A stream after its last request."""

    stream: str
    state: str  # one of STATES
    estimated_error: float | None  # of recent predictions, by the guard, without labels
    images: int
    updates: int
    rollbacks: int
    skipped: int  # calls from which something was not learned
    buffered: int  # images in the buffer
    held: int  # classes of which it holds images, as predicted
    updated: bool  # in the last request
    doing: str  # what adaptation is waiting for, in words
    seen: float  # when, in seconds since 1970
