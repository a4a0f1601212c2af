"""From the information in the source model's predictions to its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dab.guard.signals import information, softened
from dab.parts.functional import probabilities

__all__ = ["Calibration", "accuracy_of"]

# Both fitted on held-out streams, see docs/guard.md.
INFORMED = 0.84
POWER = 1.25
BATCH = 64
TEMPERATURES = [1.05**k for k in range(30)]  # 1 to 4.1


@dataclass(frozen=True)
class Calibration:
    """How sure the source model is where its accuracy is known: three numbers.

    The accuracy elsewhere is estimated as `accuracy` (I / `information`)^1.25, where I is the
    information in its predictions there. Create it with `Calibration.of`.
    """

    accuracy: float  # on the labeled images
    information: float  # in the predictions for them, as a share of log C
    temperature: float = 1.0  # at least 1: an overconfident model is softened first

    def __post_init__(self) -> None:
        if not (0 < self.accuracy <= 1 and 0 < self.information <= 1 and self.temperature >= 1):
            raise ValueError(
                "accuracy and information must be between 0 and 1, and temperature at least 1, "
                f"got {self}"
            )

    @classmethod
    @torch.no_grad()
    def of(cls, model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Calibration:
        """From a few hundred labeled images that the source model was not trained on.

        >>> model = torch.nn.Flatten()
        >>> images, labels = 3 * torch.eye(4)[:, :, None, None], torch.arange(4)
        >>> Calibration.of(model, images, labels).accuracy
        1.0
        """
        if len(images) != len(labels) or not len(labels):
            raise ValueError(f"got {len(images)} images and {len(labels)} labels")
        parts = [probabilities(model(part)).cpu().double() for part in torch.split(images, BATCH)]
        p, y = torch.cat(parts), labels.cpu().long()
        accuracy = float((p.argmax(dim=1) == y).double().mean())

        def surprise(temperature: float) -> float:
            given = softened(p, temperature).gather(1, y[:, None])
            return float(-given.clamp_min(1e-30).log().sum())

        temperature = min(TEMPERATURES, key=surprise)
        soft = softened(p, temperature)
        told = information(soft, soft)
        if not accuracy or not told:
            raise ValueError(
                f"the model's accuracy on these images is {accuracy:.3g} and its predictions tell "
                f"{told:.3g} of the class: are images and labels those of its task?"
            )
        return cls(accuracy, told, temperature)


def accuracy_of(told: float, calibration: Calibration | None) -> float:
    """The estimated accuracy of a source model whose predictions tell this much of the class."""
    if calibration is None:
        return INFORMED * math.sqrt(told)
    return min(1.0, calibration.accuracy * math.pow(told / calibration.information, POWER))
