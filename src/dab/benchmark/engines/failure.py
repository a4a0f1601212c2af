"""Why a run has no result, as a value that can be sent between processes."""

from __future__ import annotations

from dataclasses import dataclass
from traceback import format_exception

__all__ = ["Failure"]


@dataclass(frozen=True)
class Failure:
    """What went wrong with a run.

    Args:
        summary: one line.
        details: a traceback, unless the summary is enough.
        lost: its process or machine died, and another may resume from the last checkpoint.
        claimed: another process that shares the folder of results is executing the run.

    >>> Failure.of(ValueError("capacity must be at least 1, got 0"))
    Failure(summary='ValueError: capacity must be at least 1, got 0', details='', lost=False, ...)
    """

    summary: str
    details: str = ""
    lost: bool = False
    claimed: bool = False

    @classmethod
    def of_source(cls) -> Failure:
        """The failure of a run whose source run has failed."""
        return cls("the source run of its stream failed")

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure for an error; those meant for users need no traceback."""
        summary = f"{type(error).__name__}: {error}"
        if isinstance(error, ValueError | OSError):
            return cls(summary)
        return cls(summary, "".join(format_exception(error)))
