"""Why a run has no result, in words that any process can send to another."""

from __future__ import annotations

from dataclasses import dataclass
from traceback import format_exception

__all__ = ["Failure"]


@dataclass(frozen=True)
class Failure:
    """What went wrong with a run.

    Args:
        summary: in a line.
        details: where, unless the summary speaks for itself.
        lost: its process or machine has gone, and another may go on from the last checkpoint.

    >>> Failure.of(ValueError("capacity must be at least 1, got 0"))
    Failure(summary='ValueError: capacity must be at least 1, got 0', details='', lost=False)
    """

    summary: str
    details: str = ""
    lost: bool = False

    @classmethod
    def of_source(cls) -> Failure:
        """The failure of a run that has nothing to be compared with."""
        return cls("the source run of its stream has failed")

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an error is; those that are meant for users speak for themselves."""
        summary = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError | OSError):
            return cls(summary)
        return cls(summary, "".join(format_exception(error)))
