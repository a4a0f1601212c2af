"""The guard: notices without labels when adapting makes things worse, and steps back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from dab.guard.calibration import Calibration
from dab.guard.decision import SUSPICIOUS, Decision, State, has_unlearned
from dab.guard.health import Estimate, Health
from dab.guard.probe import FEWEST, Probe
from dab.guard.recovery import Recovery
from dab.guard.references import AT_ONCE, References
from dab.guard.signals import Comparison, Drift, Failures, Opinion, UpdateNorm
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

WINDOWS = (320, 1000)  # images of the stream that opinions are formed on, the longest last
EVERY = 640  # images from one snapshot to the next
UNSURE = 0.02  # standard error of the added error over the shorter window
ADDED = 16  # images of the past that a comparison adds, at most about twice that


class Guard(Recorded):
    """Watches an adapter and steps back when its adaptation has failed.

    The source weights also predict some of the images. The guard estimates the error that adapting
    adds from where the two models agree, how confident they are where they disagree, and how many
    classes each predicts; see `Opinion`. `Decision` says what is healthy, suspicious and failed.
    While an adapter is suspicious, learns fast or too little is known, all images of a call are
    compared as far as the budget allows, and, if the action is to step back, answered by the source
    where that is probably better. A few images of the past are predicted again now and then; see
    `References`.

    A method that trains nothing has nothing to guard.

    Args:
        action: when adaptation has failed, "warn" logs a warning. "rollback" also returns to the
            last healthy snapshot, or, if that fails soon, to earlier ones and finally to the
            source; the learning rate is a quarter of what it was, and doubles after a while
            without another failure. "pause" does the same, but learns nothing for that while.
            "reset" returns to the source and empties the buffer. A function gets the `Health` and
            returns one of these names, or None.
        tolerance: the added error above which adaptation has failed.
        share: what the guard may cost where both models agree, as a share of the method's own
            forward passes. A call that learns counts as two.
        snapshots: how many healthy states to keep.
        calibration: from a few hundred labeled images, for better estimates of the accuracy.
    """

    @checked
    def __init__(
        self,
        action: Action | Choose = "rollback",
        *,
        tolerance: Annotated[float, Range(SUSPICIOUS, 1)] = 0.03,
        share: Annotated[float, Range(above=0, most=1)] = 0.02,
        snapshots: Count = 4,
        calibration: Calibration | None = None,
    ) -> None:
        self.action, self.tolerance, self.share = action, tolerance, share
        self.capacity, self.calibration = snapshots, calibration
        self.options["calibration"] = calibration and list(vars(calibration).values())
        self.reset()

    options: dict[str, Any]  # the plain values it was created with

    def reset(self) -> None:
        """Forget the stream."""
        temperature = 1.0 if self.calibration is None else self.calibration.temperature
        self.probe, self.comparison = Probe(self.share), Comparison(temperature=temperature)
        self.references = References()
        self.drift, self.answering = Drift(), Drift()
        self.update_norm, self.failures = UpdateNorm(), Failures()
        self.decision, self.recovery = Decision(self.tolerance), Recovery()
        self.snapshots = Snapshots(self.capacity, EVERY)
        self._images = self._compared = 0
        self._new = self._unmeasured = 0  # images compared since the last judgment; since a measure
        self._estimated_error: float | None = None

    @property
    def health(self) -> Health:
        """What the guard thinks of the adapter."""
        opinions = self._opinions()
        opinion = opinions[-1] if opinions else None
        estimate = Estimate.of(opinions[0], self.calibration) if opinions else None
        return Health(
            state=self.decision.state,
            since=self.decision.since,
            accuracy=None if estimate is None else estimate.accuracy,
            accuracy_interval=None if estimate is None else estimate.interval,
            added_error=None if opinion is None else opinion.added_error,
            agreement=None if opinion is None else opinion.agreement,
            lost_classes=None if opinion is None else opinion.lost_classes,
            drift=self.drift.distance,
            update_norm=self.update_norm.latest,
            rate=0.0 if self.recovery.paused else self.recovery.rate,
            rollbacks=self.recovery.failures,
            compared=self._compared,
        )

    @property
    def paused(self) -> bool:
        """Whether the adapter is to answer without learning."""
        return self.recovery.paused

    @property
    def nbytes(self) -> int:
        """The bytes of what it remembers: images, predictions and snapshots."""
        return self.references.nbytes + self.comparison.nbytes + self.snapshots.nbytes

    def check(self, adapter: Adapter, batch: Tensor, answer: Tensor) -> Tensor:
        """Look at a call that has learned, and act; returns the logits to answer with."""
        if not adapter.trained.masters or not torch.isfinite(answer).all():
            return answer
        count = len(batch)
        self._images += count
        if adapter.last.restarted:  # by itself: what it learned before is not to be kept
            self.snapshots.clear()
            self.references = References()
            self._forget_weights(adapter)
            self.decision.become("healthy", self._images)
        self.failures.follow(adapter.last.skipped)
        self._follow_update(adapter)
        self._measure(adapter, count)
        due = self.snapshots.follow(count) and self.probe.ample
        doubtful = self.decision.state != "healthy" or not self._compared
        close = doubtful or due or self.answering.due or self._is_unsure()
        source = self._compare(adapter, batch, answer, close)
        looked = self._look_back(adapter, doubtful or due or self.drift.due)
        if looked or self._new >= FEWEST or self.failures.count:
            whole = len(source) == count
            worse = whole and self.action in BACK and self._seems_worse(count)
            if self._judge(affordable=whole) == "failed" and self._act(adapter):
                worse = True
                if not whole:
                    source = adapter.as_source(batch)
            elif due and whole:
                self.snapshots.offer(adapter, self._is_well())
            if worse and torch.isfinite(source).all():
                answer = source
        self.recovery.follow(count)
        adapter.last.estimated_error = self._estimated_error
        return answer

    def _follow_update(self, adapter: Adapter) -> None:
        """Have the past looked at, and the answer if it shows the update, after a large one."""
        norm = adapter.trained.update_norm()
        if norm and self.update_norm.follow(norm):
            self.drift.doubt()
            if adapter.answers_after_update:
                self.answering.doubt()

    def _measure(self, adapter: Adapter, count: int) -> None:
        """How far the weights have moved; less often later, when a doubling takes longer."""
        self._unmeasured += count
        if self._unmeasured < min(256, max(FEWEST, self._images // 16)):
            return
        before, self._unmeasured = self.drift.distance, 0
        self.drift.follow(adapter.trained.distance())
        self.answering.follow(self.drift.distance if adapter.answers_after_update else before)

    def _judge(self, affordable: bool) -> State:
        """The state after what has been seen, and the estimated error."""
        self._new = 0
        opinions = self._opinions()
        if opinions:
            self.probe.disagreement = 1 - opinions[-1].agreement
            self._estimated_error = 1 - Estimate.of(opinions[0], self.calibration).accuracy
        return self.decision.judge(
            opinions,
            self._images,
            past=self.references.opinion,
            affordable=affordable,
            not_finite=self.failures.count,
        )

    def _compare(self, adapter: Adapter, batch: Tensor, answer: Tensor, close: bool) -> Tensor:
        """Let the source predict some images, all for a close look; returns its logits."""
        chosen = self.probe.choose(len(batch), adapter.last.updated, close).to(answer.device)
        source = adapter.as_source(batch[chosen]) if len(chosen) else answer[:0]
        if not torch.isfinite(source).all():
            source, chosen = answer[:0], chosen[:0]
        p_s = probabilities(source)
        self.comparison.add(probabilities(answer), p_s, chosen.cpu())
        if not len(chosen):
            return source
        if not adapter.episodic:  # then nothing that is learned from other images lasts
            few = slice(None, None, max(1, len(chosen) // ADDED))
            self.references.add(batch[chosen[few]], p_s[few])
        self._compared += len(chosen)
        self._new += len(chosen)
        adapter.last.compared = len(chosen)
        if len(chosen) == len(batch):
            self.answering.looked(len(chosen))
        return source

    def _look_back(self, adapter: Adapter, close: bool) -> bool:
        """Predict images of the past with the present weights; returns whether that was due."""
        if not self.references.ready or not self.probe.looks_back(AT_ONCE, close):
            return False
        self.drift.looked(AT_ONCE)
        return self._predict_past(adapter) is not None

    def _predict_past(self, adapter: Adapter) -> Opinion | None:
        """What images of the past say about the present weights; None if they predict no number."""
        logits = adapter.infer(self.references.read(adapter.trained.device))
        if not torch.isfinite(logits).all():
            return None
        return self.references.look(probabilities(logits))

    def _opinions(self) -> list[Opinion]:
        found = [self.comparison.opinion(window) for window in WINDOWS]
        return [opinion for opinion in found if opinion is not None]

    def _seems_worse(self, count: int) -> bool:
        """Whether the source model probably has answered this very call better."""
        opinion = self.comparison.opinion(count)
        return opinion is not None and opinion.added_error > opinion.uncertainty

    def _is_unsure(self) -> bool:
        """Whether recent images say too little, and close looks at more are saved up."""
        if not self.probe.ample:
            return False
        opinion = self.comparison.opinion(WINDOWS[0])
        return opinion is None or opinion.uncertainty > UNSURE

    def _is_well(self) -> bool:
        """Whether this state is worth a snapshot: better than the source, the last resort."""
        opinions = self._opinions()
        well = all(o.added_error + o.uncertainty / 2 < 0 for o in opinions)
        past = self.references.opinion
        remembered = past is None or past.added_error < SUSPICIOUS
        return bool(opinions) and well and remembered and self.decision.state == "healthy"

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
            self.references.looks.clear()
        else:
            self._return(adapter, back)
        adapter.last.rolled_back = True
        self._forget_weights(adapter)
        self.probe.refill()  # to look closely until the weights have proved themselves
        self.failures.follow(False)
        self.decision.become("suspicious", self._images)
        return True

    def _forget_weights(self, adapter: Adapter) -> None:
        """What the stream has shown is about other weights than the present ones."""
        self.comparison.clear()
        self.update_norm.clear()
        for drift in (self.drift, self.answering):
            drift.clear(adapter.trained.distance())

    def _return(self, adapter: Adapter, back: int) -> None:
        """To the snapshot so many steps back, or an earlier one that remembers the past."""
        while self.snapshots.restore(adapter, back):
            self.references.looks.clear()
            if not self.references.ready or not self._has_unlearned(adapter):
                return
            back = 1
        self.references.looks.clear()

    def _has_unlearned(self, adapter: Adapter) -> bool:
        for _ in range(2):  # all of the images
            past = self._predict_past(adapter)
        return past is None or has_unlearned(past)

    # Saving, resuming and rolling back.

    def _parts(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "comparison": self.comparison,
            "references": self.references,
            "drift": self.drift,
            "answering": self.answering,
            "update_norm": self.update_norm,
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

    def state_dict(self, images: bool = True) -> dict[str, Any]:
        """Everything it needs to resume; without the images of the past if asked."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        if not images:
            parts["references"] = References().state_dict()
        return {
            "images": self._images,
            "compared": self._compared,
            "new": self._new,
            "unmeasured": self._unmeasured,
            "estimated_error": self._estimated_error,
            **parts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        parts = self._parts()
        count = Integer()
        (
            self._images,
            self._compared,
            self._new,
            self._unmeasured,
            self._estimated_error,
            *states,
        ) = take(
            state,
            images=count,
            compared=count,
            new=count,
            unmeasured=count,
            estimated_error=Maybe(Number(0, 1)),
            **dict.fromkeys(parts, Nested()),
        )
        for part, saved in zip(parts.values(), states, strict=True):
            part.load_state_dict(saved)

    def check_fit(self, adapter: Adapter, memory: Any, classes: int | None) -> None:
        """Refuse what does not fit an adapter with such a memory and so many classes."""
        self.snapshots.check(adapter, memory)
        for part in (self.comparison, self.references, self.references.looks):
            if part.classes not in (None, classes):
                raise ValueError(f"its guard has {part.classes} classes, the model {classes}")


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
