"""From estimates to a state, with hysteresis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from dab.guard.signals import Opinion
from dab.parts.schema import Integer, OneOf, take
from dab.parts.transaction import Recorded

__all__ = ["Decision", "State", "has_unlearned"]

State = Literal["healthy", "suspicious", "failed"]

SUSPICIOUS = 0.01  # added error: one in a hundred images is wrong because of adapting
ENOUGH = 128  # samples that it takes to be healthy again
UNLEARNED = 0.1  # added error on images of the past
CLEARLY = 2  # standard errors by which the added error exceeds the tolerance
NOT_FINITE = 3  # calls in a row that could not learn


def is_doubtful(opinion: Opinion) -> bool:
    """Whether more than one image in a hundred may well be wrong because of adapting."""
    return opinion.added_error - opinion.uncertainty / 2 > SUSPICIOUS


def has_unlearned(past: Opinion) -> bool:
    """Whether one in ten images of the past is probably wrong because of adapting."""
    return past.added_error - past.uncertainty > UNLEARNED


class Decision(Recorded):
    """Healthy, suspicious or failed, and since when.

    With e the estimated added error over a window and s its standard error, in any window:

    - suspicious if e - s / 2 > 0.01: it may well be that more than one image in a hundred is wrong
      because of adapting;
    - failed if e - 2 s > `tolerance`, so that it clearly is more than that; if it is suspicious
      with e > `tolerance` in the longest window and no more close looks can be afforded; if
      e - s > 0.1 on images of the past, which the stream may not show at present; or if three
      calls in a row could not learn because a number was not finite;
    - healthy again only if e < 0.01 in all windows, on 128 samples at least.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.state: State = "healthy"
        self.since = 0  # images of the stream when the state began

    def judge(
        self,
        opinions: Sequence[Opinion],
        images: int,
        *,
        past: Opinion | None = None,
        affordable: bool = True,
        not_finite: int = 0,
    ) -> State:
        """The state after so many images.

        Args:
            opinions: over different windows, the longest last.
            images: of the stream.
            past: of images of the past, predicted by the present weights.
            affordable: whether close looks are.
            not_finite: calls in a row that could not learn.
        """
        clearly = max((o.added_error - CLEARLY * o.uncertainty for o in opinions), default=0.0)
        in_long_run = opinions[-1].added_error if opinions else 0.0
        doubtful = any(is_doubtful(opinion) for opinion in opinions)
        calm = all(o.added_error < SUSPICIOUS for o in opinions)
        known = any(o.samples >= ENOUGH for o in opinions)
        unlearned = past is not None and has_unlearned(past)
        unsettled = self.state == "suspicious" and in_long_run > self.tolerance and not affordable
        if clearly > self.tolerance or unsettled or unlearned or not_finite >= NOT_FINITE:
            self.become("failed", images)
        elif doubtful and self.state == "healthy":
            self.become("suspicious", images)
        elif calm and known:
            self.become("healthy", images)
        return self.state

    def become(self, state: State, images: int) -> None:
        if state != self.state:
            self.state, self.since = state, images

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "since": self.since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state, self.since = take(state, state=OneOf(get_args(State)), since=Integer())
