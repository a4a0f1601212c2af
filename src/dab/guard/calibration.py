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
POWER = 1.5
UNCALIBRATED = 0.84
BATCH = 64
TEMPERATURES = [1.05**k for k in range(41)]  # 1 to 7


@dataclass(frozen=True)
class Calibration:
    """How certain the source model is where its accuracy is known: three numbers.

    Where its mean certainty is c, its accuracy is estimated as `accuracy` (c / `certainty`)^1.5:
    under a shift, accuracy falls faster than certainty. Create it with `Calibration.of`.
    """

    accuracy: float  # on the labeled images
    certainty: float  # mean of 1 - entropy / log C on them, at the temperature
    temperature: float = 1.0  # divides the logits; at least 1

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and 0 < self.certainty <= 1 and self.temperature >= 1):
            raise ValueError(
                "accuracy and certainty must be above 0 and at most 1, and temperature at least 1, "
                f"got {self}"
            )

    @classmethod
    @torch.no_grad()
    def of(cls, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Calibration:
        """From a few hundred labeled images that the source model was not trained on.

        The temperature is the one with the highest likelihood of the labels, but at least 1: an
        overconfident model is softened. A few errors cannot tell how far to sharpen another.

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
            return float(-given.clamp_min(1e-30).log().sum())

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

    >>> round(accuracy_of(0.64, None), 3), round(accuracy_of(0.2, Calibration(0.8, 0.8)), 3)
    (0.672, 0.1)
    """
    certainty = max(0.0, certainty)
    if calibration is None:
        return UNCALIBRATED * math.sqrt(certainty)
    return min(1.0, calibration.accuracy * math.pow(certainty / calibration.certainty, POWER))
