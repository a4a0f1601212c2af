"""Noticing that a stream's images have changed in kind: from noise to blur, from day to night."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.parts.schema import Array, Maybe, Number, take
from dab.parts.transaction import Recorded

__all__ = ["ShiftDetector", "octave_energies"]

OCTAVES = 4
LEAST_ENERGY = 1e-6  # energies below, of a constant image, count as this


class ShiftDetector(Recorded):
    r"""Compares the recent images with those before, whatever they show and whatever a model says.

    An image is described by d, the energies of its octaves (`octave_energies`). Corruptions,
    weather and cameras change them more than the class of the object does, so a stream that is
    sorted by class raises no alarm. Frames of one scene are nearly one image, so an image counts
    by how much it differs from the one before. With mean m and variance v of the images so far:

        w_i = min(1, mean_j (d_ij - d_(i-1)j)^2 / (2 v_j))        1 for unrelated images
        n = sum_i w_i
        r = r + min(1, n / RECENT) (sum_i w_i d_i / n - r)        the recent images
        score = mean_j (r_j - m_j)^2 / v_j

    A score above THRESHOLD is a shift, and m, v and r start again with this batch, v with no less
    than a quarter of what it was. Otherwise m and v follow the stream, with a memory of MEMORY
    images. Nothing is compared before FEWEST images, and no v counts as less than LEAST_VARIANCE.

    The threshold is the geometric mean of the highest score inside a domain and the lowest at
    a change of domain, on held-out corruptions; see docs/sequence.md.

    >>> _ = torch.manual_seed(0)
    >>> detector = ShiftDetector()
    >>> sharp = torch.rand(128, 3, 16, 16) * torch.rand(128, 1, 1, 1)
    >>> detector.notices(sharp[:64]), detector.notices(sharp[64:])
    (False, False)
    >>> detector.notices(F.interpolate(sharp[:64, :, :4, :4], size=16))  # without details
    True
    """

    THRESHOLD = 0.76
    RECENT = 32.0
    MEMORY = 2000.0
    FEWEST = 64.0
    LEAST_VARIANCE = 0.03  # unrelated images of the held-out corruptions have 0.036 and more

    def __init__(self) -> None:
        self.score = 0.0  # of the last batch
        self._mean: Tensor | None = None
        self._variance: Tensor | None = None
        self._recent: Tensor | None = None
        self._last: Tensor | None = None  # d of the last image
        self._count = 0.0  # images that mean and variance stand for

    def notices(self, images: Tensor) -> bool:
        """Whether the stream has shifted with these images; also remembers them."""
        d = octave_energies(images)
        weights = self._weights(d)
        self._last, total = d[-1], weights.sum().item()
        if total == 0:  # the same image again
            return False
        mean = weights @ d / total
        variance = weights @ (d - mean).square() / total
        count = min(total, self.MEMORY)
        if self._mean is None or self._variance is None or self._recent is None:
            self._mean, self._variance, self._recent, self._count = mean, variance, mean, count
            return False
        self._recent = torch.lerp(self._recent, mean, min(1.0, count / self.RECENT))
        self.score = ((self._recent - self._mean).square() / self._scale()).mean().item()
        if self._count >= self.FEWEST and self.score > self.THRESHOLD:
            # A few images underestimate the variance.
            variance = torch.maximum(variance, self._variance / 4)
            self._mean, self._variance, self._recent, self._count = mean, variance, mean, count
            return True
        # Mean and variance of the images before and these together.
        self._count = min(self._count + count, self.MEMORY)
        share, distance = count / self._count, mean - self._mean
        self._variance = torch.lerp(self._variance, variance, share)
        self._variance = self._variance + share * (1 - share) * distance.square()
        self._mean = torch.lerp(self._mean, mean, share)
        return False

    def _weights(self, d: Tensor) -> Tensor:
        """How much each image counts: by how much it differs from the one before."""
        before = torch.cat([d[:1] if self._last is None else self._last[None], d[:-1]])
        weights = ((d - before).square() / (2 * self._scale())).mean(dim=1).clamp(max=1)
        if self._last is None:
            weights[0] = 1
        return weights

    def _scale(self) -> Tensor | float:
        """The variance that differences are measured in."""
        if self._variance is None:
            return self.LEAST_VARIANCE
        return self._variance.clamp_min(self.LEAST_VARIANCE)

    def state_dict(self) -> dict[str, Any]:
        parts = {
            "mean": self._mean,
            "variance": self._variance,
            "recent": self._recent,
            "last": self._last,
        }
        copies = {name: None if part is None else part.clone() for name, part in parts.items()}
        return copies | {"count": self._count, "score": self.score}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        described, spread = (
            Maybe(Array((None,), torch.float64, least=least)) for least in (-math.inf, 0)
        )
        *parts, count, score = take(
            state,
            mean=described,
            variance=spread,
            recent=described,
            last=described,
            count=Number(least=0, most=self.MEMORY),
            score=Number(least=0),
        )
        if len({None if part is None else part.shape for part in parts}) > 1:
            raise ValueError("its parts describe images by different numbers")
        parts = [None if part is None else part.cpu().clone() for part in parts]
        self._mean, self._variance, self._recent, self._last = parts
        self._count, self.score = count, score


def octave_energies(images: Tensor) -> Tensor:
    """How much detail of each size images have: (n, D) in float64, whatever their device.

    Averages of 2 x 2 pixels, of these averages, and so on halve the scale. What an average loses
    is an octave: its energy is E[x^2] before minus after. Returned are half the logarithms of the
    energies, hence of a deviation, of at most four octaves of the gray image, then of what is left.

    >>> octave_energies(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 5])
    """
    x = images.detach().to(torch.promote_types(images.dtype, torch.float32)).mean(1, keepdim=True)
    x = x - x.mean(dim=(2, 3), keepdim=True)  # no octave has it, and small differences need digits
    energies: list[Tensor] = []
    while len(energies) < OCTAVES and min(x.shape[-2:]) >= 4:
        x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
        halved = F.avg_pool2d(x, 2)
        energies.append(x.square().mean(dim=(2, 3)) - halved.square().mean(dim=(2, 3)))
        x = halved
    energies.append(x.var(dim=(2, 3), correction=0))
    return torch.cat(energies, dim=1).to("cpu", torch.float64).clamp_min(LEAST_ENERGY).log() / 2
