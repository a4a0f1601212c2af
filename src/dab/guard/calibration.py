"""From the confidence of the source model to its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dab.guard.signals import softened
from dab.parts.functional import probabilities

__all__ = ["Calibration", "accuracy_of"]

POWER = 2.5  # chosen on held-out streams, see docs/guard.md
BATCH = 64
TEMPERATURES = [1.05**k for k in range(-40, 41)]  # 0.14 to 7


@dataclass(frozen=True)
class Calibration:
    """How sure the source model is where its accuracy is known: three numbers.

    Where its mean confidence is c, its accuracy is estimated as `accuracy` (c / `confidence`)^2.5:
    under a shift, accuracy falls faster than confidence. Create it with `Calibration.of`.
    """

    accuracy: float  # on the labeled images
    confidence: float  # mean of the largest probability on them, at the temperature
    temperature: float = 1.0  # divides the logits

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and 0 < self.confidence <= 1 and self.temperature > 0):
            raise ValueError(
                "accuracy and confidence must be above 0 and at most 1, and temperature above 0, "
                f"got {self}"
            )

    @classmethod
    @torch.no_grad()
    def of(cls, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Calibration:
        """From a few hundred labeled images that the source model was not trained on.

        The temperature is the one with the highest likelihood of the labels.

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
        return cls(accuracy, float(softened(p, temperature).amax(dim=1).mean()), temperature)


def accuracy_of(confidence: float, calibration: Calibration | None) -> float:
    """The estimated accuracy of a source model of this mean confidence; without labels, just that.

    >>> accuracy_of(0.8, None), round(accuracy_of(0.4, Calibration(0.9, 0.8)), 3)
    (0.8, 0.159)
    """
    if calibration is None:
        return confidence
    relative = max(0.0, confidence) / calibration.confidence
    return min(1.0, calibration.accuracy * math.pow(relative, POWER))
