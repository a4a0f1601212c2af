"""An alarm with a bounded false-alarm rate, from a few hundred labeled source images."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from dab.parts.functional import probabilities
from dab.parts.options import Count, Range, Share, checked
from dab.parts.schema import Integer, Maybe, Nested, Number, take

__all__ = ["LowerBound", "RiskMonitor", "Threshold", "largest_rate"]

Predict = Callable[[Tensor], Tensor]

# Constants of the stitched boundary for eta = 2, s = 1.4 (Howard et al., 2021, eq. 10).
ETA, S, ZETA = 2.0, 1.4, 3.1055472779775815  # zeta(1.4)
K1 = (ETA**0.25 + ETA**-0.25) / math.sqrt(2)
K2 = (math.sqrt(ETA) + 1) / 2


def boundary(variance: float, alpha: float) -> float:
    """How far a sum of deviations ever gets, with probability 1 - alpha at all times together.

    For sums of X_i - E[X_i | past] with X_i in [0, 1], and `variance` the sum of (X_i - a guess
    made before it)^2: the empirical Bernstein bound of Howard et al., 2021, Theorem 4, with a
    polynomial stitched boundary. The expectations may change over time.
    """
    v = max(1.0, variance)
    ell = S * math.log(math.log(ETA * v)) + math.log(ZETA / (alpha * math.log(ETA) ** S))
    return math.sqrt(K1**2 * v * ell + (K2 * ell) ** 2) + K2 * ell


class LowerBound:
    """Lower confidence sequence for the running mean of the expectations of X_i in [0, 1].

    With probability 1 - alpha it is below that mean at all times.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.count = 0
        self._sum = self._variance = 0.0

    def follow(self, values: Tensor) -> None:
        """Add values; the guess for all of them is the mean of the earlier ones."""
        guess = self._sum / self.count if self.count else 0.5
        self._variance += float((values.double() - guess).square().sum())
        self._sum += float(values.double().sum())
        self.count += len(values)

    @property
    def value(self) -> float:
        """The bound now; may be negative."""
        if not self.count:
            return -math.inf
        return (self._sum - boundary(self._variance, self.alpha)) / self.count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "sum": self._sum, "variance": self._variance}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = Number(least=0)
        self.count, self._sum, self._variance = take(
            state, count=Integer(), sum=number, variance=number
        )


def largest_rate(share: float, samples: int, alpha: float) -> float:
    """Upper bound for a probability, from the share in a sample: Chernoff's, in terms of KL.

    >>> largest_rate(0.0, 300, 0.05) < 0.01 < largest_rate(0.1, 300, 0.05) - 0.1 < 0.05
    True
    """
    low, high = share, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _divergence(share, middle) * samples < math.log(1 / alpha):
            low = middle
        else:
            high = middle
    return high


def _divergence(p: float, q: float) -> float:
    """KL divergence of two coins."""
    terms = [(p, q), (1 - p, 1 - q)]
    return sum(a * math.log(a / b) if b else math.inf for a, b in terms if a)


class Threshold(NamedTuple):
    """An uncertainty above which predictions count as errors."""

    uncertainty: float
    false_positives: float  # bound for the share that is above it and right, on source images

    @classmethod
    def chosen(cls, uncertainty: Tensor, wrong: Tensor, alpha: float) -> Threshold:
        """The one that finds the most errors minus false positives, of labeled source images.

        The bound holds for all thresholds at once (Massart, 1990), so choosing costs nothing.
        """
        order = uncertainty.argsort(descending=True)
        found = torch.where(wrong[order], 1, -1).cumsum(0)  # above the next lower value
        best = int(found.argmax())
        n = len(order)
        level = float(uncertainty[order[best + 1]]) if best + 1 < n else 0.0
        above = uncertainty > level
        share = float((above & ~wrong).double().mean())
        return cls(level, share + math.sqrt(math.log(1 / alpha) / (2 * n)))


class RiskMonitor:
    """Raises an alarm when the error on a stream exceeds the source error by a tolerance.

    If it does not, and the assumption below holds, the probability that an alarm is ever raised is
    at most `alpha`, however long the stream is and whenever one looks (Schirmer et al., 2025).

    A prediction whose uncertainty 1 - max p is above a threshold counts as an error, and from the
    share of these a bound for the false positives is subtracted. The threshold and that bound are
    recomputed on the labeled source images every `calibrate_every` calls with the current model,
    because adapting changes its confidence. A confidence sequence bounds the running mean from
    below, and there is an alarm once that is greater than the bound for the source error plus the
    tolerance.

    **It assumes** that predictions that are right but uncertain are no more frequent on the stream
    than on the source images.

    Args:
        predict: the logits of the model as it is now: `adapter.predict`.
        images: of the source, a few hundred, not among those that the model was trained on.
        labels: of the images.
        tolerance: how much more error is accepted.
        alpha: bound for the probability of a false alarm.
        calibrate_every: calls from one choice of the threshold to the next.

    >>> model = torch.nn.Flatten()
    >>> images = torch.eye(4).repeat(100, 1)[:, :, None, None] * 5
    >>> monitor = RiskMonitor(model, images, torch.arange(4).repeat(100))
    >>> monitor.follow(model(images)), monitor.alarm
    (False, False)
    """

    @checked
    def __init__(
        self,
        predict: Predict,
        images: Tensor,
        labels: Tensor,
        *,
        tolerance: Share = 0.05,
        alpha: Annotated[float, Range(above=0, below=1)] = 0.05,
        calibrate_every: Count = 50,
    ) -> None:
        if len(images) != len(labels) or not len(labels):
            raise ValueError(f"got {len(images)} images and {len(labels)} labels")
        self.predict, self.images, self.labels = predict, images, labels
        self.tolerance, self.alpha, self.calibrate_every = tolerance, alpha, calibrate_every
        # A third of alpha each for the source error, the false positives and the stream.
        self.lower = LowerBound(alpha / 3)
        wrong, _ = self._source()
        share = float(wrong.double().mean())
        self.source_error = largest_rate(share, len(labels), alpha / 3)
        self.alarm_at: int | None = None  # images seen when the alarm was raised
        self._calls = 0
        self._false_positives = 0.0  # summed over the images
        self._threshold: Threshold | None = None

    @property
    def alarm(self) -> bool:
        return self.alarm_at is not None

    @property
    def bound(self) -> float:
        """The mean error on the stream is at least this, with probability 1 - alpha."""
        if not self.lower.count:
            return 0.0
        return max(0.0, self.lower.value - self._false_positives / self.lower.count)

    def follow(self, logits: Tensor) -> bool:
        """Take the logits of a call into account; returns whether there is an alarm."""
        if self._threshold is None or self._calls % self.calibrate_every == 0:
            number = self._calls // self.calibrate_every + 1
            # All of these together have a third of alpha: the sum of 1/k^2 is pi^2 / 6.
            share = 6 / (math.pi * number) ** 2
            wrong, uncertainty = self._source()
            self._threshold = Threshold.chosen(uncertainty, wrong, share * self.alpha / 3)
        self._calls += 1
        level, false_positives = self._threshold
        self.lower.follow(_uncertainty(logits) > level)
        self._false_positives += false_positives * len(logits)
        if not self.alarm and self.bound > self.source_error + self.tolerance:
            self.alarm_at = self.lower.count
        return self.alarm

    def _source(self) -> tuple[Tensor, Tensor]:
        """Which labeled images are predicted wrong, and the uncertainty of each prediction."""
        logits = torch.cat([self.predict(part) for part in torch.split(self.images, 64)]).cpu()
        return logits.argmax(dim=1) != self.labels.cpu(), _uncertainty(logits)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the labeled images."""
        threshold = self._threshold
        return {
            "lower": self.lower.state_dict(),
            "source_error": self.source_error,
            "alarm_at": self.alarm_at,
            "calls": self._calls,
            "false_positives": self._false_positives,
            "threshold": None if threshold is None else threshold._asdict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        lower, self.source_error, self.alarm_at, self._calls, self._false_positives, threshold = (
            take(
                state,
                lower=Nested(),
                source_error=Number(0, 1),
                alarm_at=Maybe(Integer()),
                calls=Integer(),
                false_positives=Number(least=0),
                threshold=Maybe(Nested()),
            )
        )
        self.lower.load_state_dict(lower)
        self._threshold = None
        if threshold is not None:
            number = Number()
            self._threshold = Threshold(
                *take(threshold, uncertainty=number, false_positives=number)
            )


def _uncertainty(logits: Tensor) -> Tensor:
    return 1 - probabilities(logits).amax(dim=1).cpu().double()
