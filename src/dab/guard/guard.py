"""The guard: notices without labels when adapting makes things worse, and steps back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from dab.guard.decision import SUSPICIOUS, Decision
from dab.guard.health import Health, accuracy_of, interval_of
from dab.guard.probe import Probe
from dab.guard.recovery import Recovery
from dab.guard.signals import Comparison, Drift, Failures, Opinion
from dab.guard.snapshots import Snapshots
from dab.parts.functional import probabilities
from dab.parts.options import Count, Range, checked
from dab.parts.schema import Integer, Maybe, Nested, Number, take
from dab.parts.transaction import Recorded

if TYPE_CHECKING:
    from dab.adapter import Adapter

__all__ = ["Action", "Guard", "GuardOption", "create_guard"]

logger = logging.getLogger("dab")

Action = Literal["warn", "rollback", "pause", "reset"]
Choose = Callable[[Health], Action | None]
BACK = ("rollback", "pause", "reset")  # the actions that step back

WINDOWS = (320, 1000)  # images of the stream that opinions are formed on
EVERY = 640  # images from one snapshot to the next


class Guard(Recorded):
    """Watches an adapter and steps back when its adaptation has failed.

    On some of the images the source weights predict too. From where the two models agree, how sure
    they are where they do not, and how many classes each predicts, the guard estimates the error
    that adapting adds; see `Opinion`. `Decision` says what is healthy, suspicious and failed. While
    an adapter is suspicious, all images of a call are compared as far as the budget allows, and,
    if the action is to step back, answered by the source weights, which have predicted them anyway.

    A method that trains nothing has nothing to guard.

    Args:
        action: when adaptation has failed, "warn" logs a warning. "rollback" also returns to the
            last healthy snapshot, or, if that fails soon, to earlier ones and finally to the
            source; the learning rate is a quarter of what it was, and doubles after a while
            without another failure. "pause" does the same, but learns nothing for that while.
            "reset" returns to the source and empties the buffer. A function gets the `Health` and
            returns one of these names, or None.
        tolerance: the added error above which adaptation has failed.
        share: of the images that are compared; half of that again is for close looks.
        snapshots: how many healthy states to keep.
    """

    @checked
    def __init__(
        self,
        action: Action | Choose = "rollback",
        *,
        tolerance: Annotated[float, Range(SUSPICIOUS, 1)] = 0.03,
        share: Annotated[float, Range(above=0, most=1)] = 0.06,
        snapshots: Count = 4,
    ) -> None:
        self.action, self.tolerance, self.share = action, tolerance, share
        self.capacity = snapshots
        self.reset()

    def reset(self) -> None:
        """Forget the stream."""
        self.probe, self.comparison = Probe(self.share), Comparison()
        self.drift, self.failures = Drift(), Failures()
        self.decision, self.recovery = Decision(self.tolerance), Recovery()
        self.snapshots = Snapshots(self.capacity, EVERY)
        self._images = self._compared = 0
        self._waiting = 0  # images since the last comparison
        self._estimated_error: float | None = None

    @property
    def health(self) -> Health:
        """What the guard thinks of the adapter."""
        opinion = self.comparison.opinion(WINDOWS[-1])
        return Health(
            state=self.decision.state,
            since=self.decision.since,
            accuracy=None if opinion is None else accuracy_of(opinion),
            accuracy_interval=None if opinion is None else interval_of(opinion),
            added_error=None if opinion is None else opinion.added_error,
            agreement=None if opinion is None else opinion.agreement,
            lost_classes=None if opinion is None else opinion.lost_classes,
            drift=self.drift.distance,
            rate=0.0 if self.recovery.paused else self.recovery.rate,
            rollbacks=self.recovery.failures,
            compared=self._compared,
        )

    @property
    def paused(self) -> bool:
        """Whether the adapter is to answer without learning."""
        return self.recovery.paused

    def check(self, adapter: Adapter, batch: Tensor, answer: Tensor) -> Tensor:
        """Look at a call that has learned, and act; returns the logits to answer with."""
        if not adapter.trained.masters or not torch.isfinite(answer).all():
            return answer
        count = len(batch)
        self._images += count
        self._waiting += count
        self.failures.follow(adapter.last.skipped)
        self.drift.follow(adapter.trained.distance())
        suspicious = self.decision.state != "healthy"
        chosen = self.probe.choose(count, close=suspicious or self.drift.due)
        if len(chosen) or self.failures.count:
            source = self._compare(adapter, batch, answer, chosen)
            opinions = self._opinions()
            if opinions:
                self._estimated_error = 1 - accuracy_of(opinions[-1])
            state = self.decision.judge(opinions, self.failures.count, self._images)
            if state == "failed" and self._act(adapter) and len(source) < count:
                source = adapter.as_source(batch)
            doubtful = state != "healthy" and (adapter.last.rolled_back or self.action in BACK)
            if doubtful and len(source) == count and torch.isfinite(source).all():
                answer = source
        self.recovery.follow(count)
        adapter.last.estimated_error = self._estimated_error
        if self.snapshots.follow(count) and self._is_well():
            self.snapshots.take(adapter)
        return answer

    def _compare(self, adapter: Adapter, batch: Tensor, answer: Tensor, chosen: Tensor) -> Tensor:
        """Let the source predict the chosen images; returns its logits."""
        chosen = chosen.to(answer.device)
        source = adapter.as_source(batch[chosen]) if len(chosen) else answer[:0]
        if not len(source) or not torch.isfinite(source).all():
            return answer[:0]
        adapted = probabilities(answer[chosen])
        self.comparison.add(adapted, probabilities(source), self._waiting)
        self._waiting = 0
        self._compared += len(chosen)
        adapter.last.compared = len(chosen)
        if len(chosen) == len(batch):
            self.drift.looked()
        return source

    def _opinions(self) -> list[Opinion]:
        found = [self.comparison.opinion(window) for window in WINDOWS]
        return [opinion for opinion in found if opinion is not None]

    def _is_well(self) -> bool:
        """Whether the present state is one to return to."""
        opinions = self._opinions()
        well = all(opinion.added_error < SUSPICIOUS for opinion in opinions)
        return bool(opinions) and well and self.decision.state == "healthy"

    def _act(self, adapter: Adapter) -> bool:
        """Adaptation has failed: warn, and step back; returns whether it did the latter."""
        health = self.health
        action = self.action(health) if callable(self.action) else self.action
        if action not in (None, *get_args(Action)):
            raise ValueError(
                f"the guard's action must return one of {get_args(Action)} or None, got {action!r}"
            )
        adapter.notices.once(
            "guard",
            "%s: adaptation has failed after %s images (%s): %s. Failures are counted in "
            "health.rollbacks and not logged again.",
            adapter.name,
            f"{self._images:,}",
            health,
            action or "nothing is done about it",
        )
        if action not in BACK:
            return False
        back = self.recovery.fail(pause=action == "pause")
        if action == "reset":
            adapter.return_to_source(forget=True)
        else:
            self.snapshots.restore(adapter, back)
        adapter.last.rolled_back = True
        # What is known is about other weights: look closely until they have proved themselves.
        self.comparison.clear()
        self.probe.refill()
        self.failures.follow(False)
        self.decision.become("suspicious", self._images)
        return True

    # Saving, resuming and rolling back.

    def _parts(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "comparison": self.comparison,
            "drift": self.drift,
            "failures": self.failures,
            "decision": self.decision,
            "recovery": self.recovery,
            "snapshots": self.snapshots,
        }

    def savepoint(self) -> Any:
        tokens = [(part, part.savepoint()) for part in self._parts().values()]
        return dict(vars(self)), tokens

    def rollback(self, token: Any) -> None:
        attributes, tokens = token
        vars(self).update(attributes)
        for part, of_part in tokens:
            part.rollback(of_part)

    def release(self) -> None:
        for part in self._parts().values():
            part.release()

    def state_dict(self) -> dict[str, Any]:
        return {
            "images": self._images,
            "compared": self._compared,
            "waiting": self._waiting,
            "estimated_error": self._estimated_error,
            **{name: part.state_dict() for name, part in self._parts().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        parts = self._parts()
        count = Integer()
        self._images, self._compared, self._waiting, self._estimated_error, *states = take(
            state,
            images=count,
            compared=count,
            waiting=count,
            estimated_error=Maybe(Number(0, 1)),
            **dict.fromkeys(parts, Nested()),
        )
        for part, saved in zip(parts.values(), states, strict=True):
            part.load_state_dict(saved)


GuardOption = Guard | bool | Action


def create_guard(guard: GuardOption) -> Guard | None:
    """A guard for one adapter: from True, the name of an action, or a copy of an instance.

    >>> create_guard("pause").action, create_guard(True).action, create_guard(False)
    ('pause', 'rollback', None)
    """
    if isinstance(guard, Guard):
        return deepcopy(guard)  # two adapters given one object have two streams
    if isinstance(guard, str):
        return Guard(guard)
    return Guard() if guard else None
