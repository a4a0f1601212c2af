"""How an adapter is doing, without labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dab.guard.calibration import Calibration, accuracy_of
from dab.guard.decision import State
from dab.guard.signals import Opinion

__all__ = ["Estimate", "Health"]

# 90 % of the held-out domains were within this, without and with a calibration.
OFF_BY, CALIBRATED_OFF_BY = 0.23, 0.1
DEVIATIONS = 1.64  # of a normal distribution for 90 %


@dataclass(frozen=True)
class Health:
    """The opinion of a guard; all numbers are estimates that need no labels.

    Accuracies, errors and shares are between 0 and 1. What has not been seen yet is None.
    """

    state: State
    since: int  # images of the stream when the state began
    accuracy: float | None  # of the recent predictions
    accuracy_interval: tuple[float, float] | None  # 90 % of held-out windows were within it
    added_error: float | None  # error of the adapted minus error of the source model
    agreement: float | None  # with the source model
    lost_classes: float | None  # log of effective classes, source minus adapted
    drift: float  # distance of the trained numbers from the source, relative to their size
    update_norm: float  # of the latest update, relative to the size of the trained numbers
    rate: float  # factor of the learning rate: below 1 for a while after a rollback
    rollbacks: int
    compared: int  # images that the source model has predicted too

    def __str__(self) -> str:
        error = (
            "" if self.accuracy is None else f", estimated error {100 * (1 - self.accuracy):.0f} %"
        )
        back = f", {self.rollbacks} rollbacks" if self.rollbacks else ""
        return f"{self.state}{error}{back}"


@dataclass(frozen=True)
class Estimate:
    """The accuracy of the adapted model, and what 90 % of held-out windows were within."""

    accuracy: float
    interval: tuple[float, float]

    @classmethod
    def of(cls, opinion: Opinion, calibration: Calibration | None) -> Estimate:
        source = accuracy_of(opinion.certainty, calibration)
        accuracy = min(1.0, max(0.0, source - opinion.added_error))
        off = OFF_BY if calibration is None else CALIBRATED_OFF_BY
        spread = math.hypot(off, DEVIATIONS * 0.5 / math.sqrt(opinion.samples))
        return cls(accuracy, (max(0.0, accuracy - spread), min(1.0, accuracy + spread)))
