"""From the certainty of the source model to its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dab.guard.signals import certainty_of, softened
from dab.parts.functional import probabilities

__all__ = ["Calibration", "accuracy_of"]

# Chosen on held-out streams, see docs/guard.md.
SLOPE = 2.0
UNCALIBRATED = 0.84
BATCH = 64
TEMPERATURES = [1.02**k for k in range(-35, 71)]  # 0.5 to 4
PRIOR = 0.1  # standard deviation of the logarithm of a temperature before any label is seen


@dataclass(frozen=True)
class Calibration:
    """How certain the source model is where its accuracy is known: three numbers.

    Where its mean certainty is c, its accuracy is estimated as `accuracy` - 2 (`certainty` - c):
    under a shift, accuracy falls faster than certainty. Create it with `Calibration.of`.
    """

    accuracy: float  # on the labeled images
    certainty: float  # mean of 1 - entropy / log C on them, at the temperature
    temperature: float = 1.0  # divides the logits

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and 0 < self.certainty <= 1 and self.temperature > 0):
            raise ValueError(
                "accuracy and certainty must be above 0 and at most 1, and temperature above 0, "
                f"got {self}"
            )

    @classmethod
    @torch.no_grad()
    def of(cls, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Calibration:
        """From a few hundred labeled images that the source model was not trained on.

        The temperature is the most probable one, given the labels and a prior around 1: the few
        errors of a good model cannot tell how far to sharpen it.

        >>> model = torch.nn.Flatten()
        >>> images, labels = 3 * torch.eye(4)[:, :, None, None], torch.arange(4)
        >>> Calibration.of(model, images, labels).accuracy
        1.0
        """
        if len(images) != len(labels) or not len(labels):
            raise ValueError(f"got {len(images)} images and {len(labels)} labels")
        parts = [probabilities(model(part)).cpu().double() for part in torch.split(images, BATCH)]
        p, y = torch.cat(parts), labels.cpu().long()

        def surprise(temperature: float) -> float:
            given = softened(p, temperature).gather(1, y[:, None])
            likelihood = float(given.clamp_min(1e-30).log().sum())
            return (math.log(temperature) / PRIOR) ** 2 / 2 - likelihood

        accuracy = float((p.argmax(dim=1) == y).double().mean())
        if not accuracy:
            raise ValueError(
                "the model predicts none of these labels: are images and labels those of its task?"
            )
        temperature = min(TEMPERATURES, key=surprise)
        certainty = float(certainty_of(softened(p, temperature)).mean())
        return cls(accuracy, certainty, temperature)


def accuracy_of(certainty: float, calibration: Calibration | None) -> float:
    """The estimated accuracy of a source model of this mean certainty.

    >>> round(accuracy_of(0.64, None), 3), round(accuracy_of(0.6, Calibration(0.8, 0.8)), 3)
    (0.672, 0.4)
    """
    if calibration is None:
        return UNCALIBRATED * math.sqrt(max(0.0, certainty))
    accuracy = calibration.accuracy - SLOPE * (calibration.certainty - certainty)
    return min(1.0, max(0.0, accuracy))
