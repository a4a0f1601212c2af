"""A causal running prior: recent classes, to the extent that they predict the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dab.outputs.output import Output, register_output
from dab.parts.ema import RunningMean
from dab.parts.functional import uniform
from dab.parts.options import Decay, NonNegative, Positive
from dab.parts.schema import Array, Maybe, Nested, Number, take

__all__ = ["CausalPrior"]

# Samples that are processed at once: the work grows with their square.
_CHUNK = 256


@register_output("causal_prior")
class CausalPrior(Output):
    """Adds how much more likely each class was recently than in the long run, sample by sample.

    Two decayed tallies of the classes predicted before correction are kept, a short and a long one.
    Sample i is corrected with the tallies of the samples before it, never with later ones, so that
    single samples work too: z_i + s log((C short + floor) / (C long + floor)).

    It assumes that recent labels predict the next one, which holds for a camera but not for a
    shuffled test set. So it measures that: how much more likely (in nats, at most log C) the short
    tally made the actual predictions than the long one did. The strength s follows the running mean
    of this gain, and is 0 where there is no gain. The long tally shows what a shuffled stream looks
    like through a biased model: against a uniform guess, such a bias would look like correlation.
    Runs of one class that are much longer than the long tally's memory also look like a bias.

    Args:
        decay: of the short tally, per sample.
        long_decay: of the long tally, per sample.
        floor: keeps a class possible that was not seen recently.
        patience: decay of the mean gain, per sample.
        trust_from: the mean gain up to which the strength is 0, as a share of the largest
            possible gain, log C.
        trust_fully: the mean gain at which the strength reaches 1, likewise.
    """

    def __init__(
        self,
        decay: Decay = 0.9,
        long_decay: Decay = 0.999,
        floor: Positive = 0.1,
        patience: Decay = 0.998,
        trust_from: NonNegative = 0.03,
        trust_fully: Positive = 0.1,
    ) -> None:
        if trust_from >= trust_fully:
            raise ValueError(
                f"trust_from must be less than trust_fully, got {trust_from} and {trust_fully}"
            )
        self.decay, self.long_decay, self.floor, self.patience = decay, long_decay, floor, patience
        self.trust_from, self.trust_fully = trust_from, trust_fully
        self.reset()

    def reset(self) -> None:
        self._short, self._long = Tally(self.decay), Tally(self.long_decay)
        self._gain = RunningMean(self.patience)
        self._strength = 0.0

    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        return torch.cat([self._correct(chunk) for chunk in torch.split(logits, _CHUNK)])

    def _correct(self, logits: Tensor) -> Tensor:
        classes = logits.shape[1]
        predicted = F.one_hot(logits.argmax(dim=1), classes).double()
        short, long = (
            classes * tally.follow(predicted) + self.floor for tally in (self._short, self._long)
        )
        prior = (short / long).log()
        gains = (prior * predicted).sum(dim=1) / math.log(classes)
        # The gains up to a sample give the strength for the next one.
        means = self._gain.follow(gains.tolist())
        width = self.trust_fully - self.trust_from
        trust = [min(1.0, max(0.0, (mean - self.trust_from) / width)) for mean in means]
        strengths, self._strength = [self._strength, *trust[:-1]], trust[-1]
        strength = torch.tensor(strengths, dtype=prior.dtype, device=prior.device)
        return logits + (strength[:, None] * prior).to(logits)

    def state_dict(self) -> dict[str, Any]:
        return {
            "short": self._short.state_dict(),
            "long": self._long.state_dict(),
            "gain": self._gain.state_dict(),
            "strength": self._strength,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        short, long, gain, self._strength = take(
            state, short=Nested(), long=Nested(), gain=Nested(), strength=Number(0, 1)
        )
        self._short.load_state_dict(short)
        self._long.load_state_dict(long)
        self._gain.load_state_dict(gain)


class Tally:
    """Class frequencies in a sequence, with older predictions counting less.

    Starts as if one uniform prediction had been counted.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._sum: Tensor | None = None
        self._weight = 1.0

    def follow(self, predicted: Tensor) -> Tensor:
        """Count rows one by one; returns the frequencies before each of them."""
        n, classes = predicted.shape
        start = uniform(classes) if self._sum is None else self._sum
        # Before row i: d^i sum_0 + sum_{j < i} d^(i - 1 - j) row_j, and the same of ones.
        number = torch.arange(n + 1, device=predicted.device, dtype=predicted.dtype)[:, None]
        age = number - number[:-1].T - 1
        past = torch.where(age >= 0, self.decay ** age.clamp_min(0), 0)
        fading = self.decay**number
        sums = fading * start.to(predicted) + past @ predicted
        weights = fading * self._weight + past.sum(dim=1, keepdim=True)
        self._sum, self._weight = sums[-1].clone(), float(weights[-1])
        return sums[:-1] / weights[:-1]

    def state_dict(self) -> dict[str, Any]:
        return {"sum": None if self._sum is None else self._sum.clone(), "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        total, weight = take(
            state, sum=Maybe(Array((None,), torch.float64, least=0)), weight=Number(least=1)
        )
        if not math.isclose(weight, 1 if total is None else total.sum().item(), rel_tol=1e-6):
            raise ValueError(f"its frequencies do not sum to their weight, {weight}")
        self._sum, self._weight = None if total is None else total.clone(), weight
