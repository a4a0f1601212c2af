"""What adaptation did, in plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Step", "Totals", "counted"]


@dataclass
class Step:
    """What one call did."""

    samples: int = 0
    admitted: int = 0  # into the buffer
    replaced: int = 0  # of those, how many took another sample's place
    fill: int = 0  # samples in the buffer after the call
    updated: bool = False
    skipped: bool = False  # something was not learned, because a number was not finite
    restored: bool = False  # the source weights, because the adapted ones gave no finite answer
    restarted: bool = False  # the method started over by itself: a shift, or it did harm
    loss: float | None = None  # of the update
    compared: int = 0  # samples that the guard let the source model predict too
    rolled_back: bool = False  # by the guard
    estimated_error: float | None = None  # of recent predictions, by the guard, without labels

    steps = 0  # of the optimizer; not one of the numbers
    reason = ""  # why this call did or did not update, in words; not one of the numbers


@dataclass
class Totals:
    """What all calls since the last reset did together."""

    calls: int = 0
    samples: int = 0
    admitted: int = 0
    replaced: int = 0
    updates: int = 0
    skipped: int = 0
    restored: int = 0
    restarts: int = 0
    compared: int = 0
    rollbacks: int = 0

    def plus(self, step: Step) -> Totals:
        """The totals with one more call."""
        return Totals(
            calls=self.calls + 1,
            samples=self.samples + step.samples,
            admitted=self.admitted + step.admitted,
            replaced=self.replaced + step.replaced,
            updates=self.updates + step.updated,
            skipped=self.skipped + step.skipped,
            restored=self.restored + step.restored,
            restarts=self.restarts + step.restarted,
            compared=self.compared + step.compared,
            rollbacks=self.rollbacks + step.rolled_back,
        )


def counted(count: int, what: str, several: str | None = None) -> str:
    """A count with its noun.

    >>> counted(1, "update"), counted(2000, "call"), counted(3, "class", "classes")
    ('1 update', '2,000 calls', '3 classes')
    """
    return f"{count:,} {what if count == 1 else several or what + 's'}"
