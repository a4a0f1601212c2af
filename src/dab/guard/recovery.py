"""How slowly to learn after a failure, and how far to step back if it fails again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dab.parts.schema import Integer, Number, OneOf, take
from dab.parts.transaction import Recorded

__all__ = ["Recovery"]

LOWERED = 0.25  # the rate after a failure, relative to the one that failed; squared if repeated
SLOWEST = 2.0**-10
PATIENCE = 1000  # images without a failure before the rate doubles; itself doubles per failure
LONGEST = 2**10  # times that, at most
AGAIN = 2000  # images within which another failure is a repeated one


class Recovery(Recorded):
    """The factor of the learning rate, which falls with each failure and slowly recovers.

    >>> recovery = Recovery()
    >>> recovery.fail(pause=False), recovery.rate  # one snapshot back
    (1, 0.25)
    >>> recovery.fail(pause=False), recovery.rate  # again: three back, and slower still
    (3, 0.015625)
    >>> recovery.follow(4000); recovery.rate
    0.03125
    """

    def __init__(self) -> None:
        self.rate = 1.0
        self.paused = False
        self.failures = 0
        self._series = 0  # failures that followed each other soon
        self._calm = AGAIN  # images since the last failure or doubling

    def fail(self, pause: bool) -> int:
        """Lower the rate, or pause; returns how many snapshots to step back."""
        self._series = min(3, self._series + 1) if self._calm < AGAIN else 1
        self.failures += 1
        self.rate = max(SLOWEST, LOWERED**self._series * self.rate)
        self.paused, self._calm = pause, 0
        return int(2**self._series - 1)

    def follow(self, images: int) -> None:
        """So many images have passed without a failure."""
        self._calm += images
        patience = PATIENCE * min(LONGEST, 2**self.failures)
        if self._calm >= patience and self.rate < 1:
            self.rate, self.paused, self._calm = min(1.0, 2 * self.rate), False, 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "rate": self.rate,
            "paused": self.paused,
            "failures": self.failures,
            "series": self._series,
            "calm": self._calm,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        count = Integer()
        self.rate, self.paused, self.failures, self._series, self._calm = take(
            state,
            rate=Number(SLOWEST, 1),
            paused=OneOf((False, True)),
            failures=count,
            series=count,
            calm=count,
        )
