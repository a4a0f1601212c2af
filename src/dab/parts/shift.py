"""Noticing that a stream's images have changed in kind: from noise to blur, from day to night."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.parts.schema import Array, Maybe, Nested, Number, take
from dab.parts.transaction import Recorded

__all__ = ["ShiftDetector", "octave_energies"]

OCTAVES = 4
LEAST_ENERGY = 1e-6  # energies below, of a constant image, count as this


class ShiftDetector(Recorded):
    r"""Compares the recent images with those before, whatever they show and whatever a model says.

    An image is described by d, the D energies of its octaves (`octave_energies`). Corruptions,
    weather and cameras change their ratios, while objects and light change them together. So
    differences are measured in units of the covariance S of the images so far, and a stream that
    is sorted by class raises no alarm. Frames of one scene are nearly one image, so an image counts
    by how much it differs from the one before:

        w_i = min(1, mean_j (d_ij - d_(i-1)j)^2 / (2 S_jj))       1 for unrelated images

    Calls are collected until they count as RECENT images or more. With r, their weighted mean, and
    m, the mean of the images before:

        score = (r - m)^T (S + RIDGE I)^-1 (r - m) / D

    A score above THRESHOLD is a shift. Then m starts again with the recent images; S is kept, since
    they may be of both kinds, but counts for no more images than these. Otherwise m and S
    follow the stream, with a memory of MEMORY images. Nothing is compared before FEWEST images,
    and no S_jj counts as less than LEAST_VARIANCE in w_i.

    The threshold was chosen on held-out corruptions; see docs/sequence.md.

    >>> _ = torch.manual_seed(0)
    >>> detector = ShiftDetector()
    >>> sharp = torch.rand(128, 3, 16, 16) * torch.rand(128, 1, 1, 1)
    >>> detector.notices(sharp[:64]), detector.notices(sharp[64:])
    (False, False)
    >>> detector.notices(F.interpolate(sharp[:64, :, :4, :4], size=16))  # without details
    True
    """

    THRESHOLD = 0.2
    RIDGE = 0.003
    RECENT = 16.0
    MEMORY = 2000.0
    FEWEST = 64.0
    LEAST_VARIANCE = 0.03  # unrelated images of the held-out corruptions have 0.036 and more

    def __init__(self) -> None:
        self.score = 0.0  # of the last comparison
        self._before: _Moments | None = None
        self._recent: _Moments | None = None  # not compared yet
        self._last: Tensor | None = None  # d of the last image

    def notices(self, images: Tensor) -> bool:
        """Whether the stream has shifted with these images; also remembers them."""
        d = octave_energies(images)
        recent = _Moments.of(d, self._weights(d))
        self._last = d[-1]
        if self._recent is not None:
            recent = self._recent.plus(recent)
        if recent.total < self.RECENT:
            self._recent = recent
            return False
        before, self._recent = self._before, None
        if before is None:
            self._before = recent.at_most(self.MEMORY)
            return False
        away = recent.mean - before.mean
        units = before.covariance + self.RIDGE * torch.eye(len(away), dtype=away.dtype)
        self.score = (away @ torch.linalg.solve(units, away)).item() / len(away)
        shifted = before.total >= self.FEWEST and self.score > self.THRESHOLD
        new = recent._replace(covariance=before.covariance) if shifted else before.plus(recent)
        self._before = new.at_most(self.MEMORY)
        return shifted

    def _weights(self, d: Tensor) -> Tensor:
        """How much each image counts: by how much it differs from the one before."""
        previous = torch.cat([d[:1] if self._last is None else self._last[None], d[:-1]])
        scale: Tensor | float = self.LEAST_VARIANCE
        if self._before is not None:
            scale = self._before.covariance.diagonal().clamp_min(self.LEAST_VARIANCE)
        weights = ((d - previous).square() / (2 * scale)).mean(dim=1).clamp(max=1)
        if self._last is None:
            weights[0] = 1
        return weights

    def state_dict(self) -> dict[str, Any]:
        return {
            "before": None if self._before is None else self._before.state_dict(),
            "recent": None if self._recent is None else self._recent.state_dict(),
            "last": None if self._last is None else self._last.clone(),
            "score": self.score,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        before, recent, last, score = take(
            state,
            before=Maybe(Nested()),
            recent=Maybe(Nested()),
            last=Maybe(Array((None,), torch.float64)),
            score=Number(least=0),
        )
        moments = [
            None if part is None else _Moments.from_state(part, self.MEMORY)
            for part in (before, recent)
        ]
        widths = {len(part.mean) for part in moments if part is not None}
        if widths - {0 if last is None else len(last)}:
            raise ValueError("its parts describe images by different numbers")
        self._before, self._recent = moments
        self._last = None if last is None else last.cpu().clone()
        self.score = score


class _Moments(NamedTuple):
    """Mean and covariance of weighted rows, and what the rows count for; never changed in place."""

    total: float
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, rows: Tensor, weights: Tensor) -> _Moments:
        total = weights.sum().item()
        mean = weights @ rows / total if total else rows[-1]  # the same image again counts nothing
        away = rows - mean
        return cls(total, mean, away.T @ (weights[:, None] * away) / max(total, 1e-300))

    def plus(self, other: _Moments) -> _Moments:
        """Of the rows of both."""
        count = self.total + other.total
        if count == 0:
            return other
        share, away = other.total / count, other.mean - self.mean
        covariance = torch.lerp(self.covariance, other.covariance, share)
        covariance = covariance + share * (1 - share) * away.outer(away)
        return _Moments(count, torch.lerp(self.mean, other.mean, share), covariance)

    def at_most(self, count: float) -> _Moments:
        """Counting for no more than this."""
        return self._replace(total=min(self.total, count))

    def state_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "mean": self.mean.clone(),
            "covariance": self.covariance.clone(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], most: float) -> _Moments:
        total, mean, covariance = take(
            state,
            total=Number(least=0, most=most),
            mean=Array((None,), torch.float64),
            covariance=Array((None, None), torch.float64),
        )
        if covariance.shape != (len(mean), len(mean)):
            raise ValueError("its covariance does not have a row and a column for each number")
        lowest = torch.linalg.eigvalsh(covariance)[:1]
        if (lowest < -1e-6).any() or not torch.allclose(covariance, covariance.T):
            raise ValueError("its covariance is not one")
        return cls(total, mean.cpu().clone(), covariance.cpu().clone())


def octave_energies(images: Tensor) -> Tensor:
    """How much detail of each size images have: (n, D) in float64, whatever their device.

    Averages of 2 x 2 pixels, of these averages, and so on halve the scale. What an average loses
    is an octave: its energy is E[x^2] before minus after. Returned are half the logarithms of the
    energies, hence of a deviation, of at most four octaves, then of what is left: of the gray
    image, then of what each channel but the last differs from it by.

    >>> octave_energies(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 15])
    """
    x = images.detach().to(torch.promote_types(images.dtype, torch.float32))
    gray = x.mean(dim=1, keepdim=True)
    x = torch.cat([gray, x[:, :-1] - gray], dim=1)  # the differences of all channels sum to 0
    x = x - x.mean(dim=(2, 3), keepdim=True)  # no octave has it, and small differences need digits
    energies: list[Tensor] = []
    while len(energies) < OCTAVES and min(x.shape[-2:]) >= 4:
        x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
        halved = F.avg_pool2d(x, 2)
        energies.append(x.square().mean(dim=(2, 3)) - halved.square().mean(dim=(2, 3)))
        x = halved
    energies.append(x.var(dim=(2, 3), correction=0))
    # All octaves of the gray image come first.
    stacked = torch.stack(energies, dim=2).flatten(1).to("cpu", torch.float64)
    return stacked.clamp_min(LEAST_ENERGY).log() / 2
