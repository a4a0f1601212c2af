"""A causal running prior: the classes of the recent past, as far as they foretell the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dab.functional import probabilities, uniform
from dab.outputs.output import Output, register_output
from dab.running import RunningMean

__all__ = ["CausalPrior"]

# Samples that are worked through in one go: the work grows with their square.
_CHUNK = 256


@register_output("causal_prior")
class CausalPrior(Output):
    """Adds the log of a decayed tally of the stream's own predictions, sample by sample.

    Sample i is corrected with the tally t of the samples before it, never with later ones, so
    that it works for single samples too: z_i + s log(C t + floor).

    It assumes that the recent past foretells the next label, which holds for a camera and not for
    a shuffled test set. So it measures that: how much likelier (in nats) the tally made the
    predictions that came than a uniform guess would have. The strength s follows the running mean
    of this gain, and fades to nothing where there is none.

    Args:
        decay: of the tally, a sample.
        floor: keeps a class that has not been seen lately possible.
        patience: decay of the mean gain, a sample.
        full_gain: nats of mean gain at which the prior is trusted fully.
    """

    def __init__(
        self,
        decay: float = 0.9,
        floor: float = 0.1,
        patience: float = 0.98,
        full_gain: float = 0.5,
    ) -> None:
        for name, value in (("decay", decay), ("patience", patience)):
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {value}")
        if floor <= 0 or full_gain <= 0:
            raise ValueError("floor and full_gain must be positive")
        self.decay, self.floor = decay, floor
        self.patience, self.full_gain = patience, full_gain
        self.reset()

    def reset(self) -> None:
        self._tally: Tensor | None = None
        self._gain = RunningMean(self.patience)
        self._strength = 0.0

    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        return torch.cat([self._correct(chunk) for chunk in torch.split(logits, _CHUNK)])

    def _correct(self, logits: Tensor) -> Tensor:
        y = probabilities(logits)
        n, classes = y.shape
        tally = (uniform(classes) if self._tally is None else self._tally).to(y)
        # Row i: the tally before sample i, t_i = d^i t_0 + (1 - d) sum_{j < i} d^(i - 1 - j) y_j.
        age = torch.arange(n + 1, device=y.device)[:, None] - torch.arange(n, device=y.device) - 1
        past = torch.where(age >= 0, (1 - self.decay) * self.decay ** age.clamp_min(0), 0).to(y)
        fading = self.decay ** torch.arange(n + 1, device=y.device)[:, None]
        tallies = fading.to(y) * tally + past @ y
        self._tally, tallies = tallies[-1], tallies[:-1]

        gains = (classes * (tallies * y).sum(dim=1) + self.floor).log()
        # What the gains up to a sample say holds for the next one.
        means = self._gain.follow(gains.tolist())
        trust = [min(1.0, max(0.0, mean / self.full_gain)) for mean in means]
        strengths, self._strength = [self._strength, *trust[:-1]], trust[-1]
        prior = (classes * tallies + self.floor).log()
        return logits + (torch.tensor(strengths).to(y)[:, None] * prior).to(logits)

    def state_dict(self) -> dict[str, Any]:
        tally = None if self._tally is None else self._tally.clone()
        return {"tally": tally, "gain": self._gain.state_dict(), "strength": self._strength}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._tally = None if state["tally"] is None else state["tally"].clone()
        self._gain.load_state_dict(state["gain"])
        self._strength = state["strength"]
