"""A teacher: the trained parameters again, following the student slowly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dab.parts.parameters import TrainedParameters

__all__ = ["Teacher"]


class Teacher:
    """A second set of values for the trained parameters, which starts at the source.

    The rest of the network is shared: `adapter.run(images, teacher.parameters)` swaps the values
    in for one pass, so that no copy of the whole network is needed.
    """

    def __init__(self, weights: TrainedParameters) -> None:
        self._weights = weights
        self._values = [source.clone() for source in weights.source]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The values by parameter name, in the model's own precision."""
        return self._weights.named(self._values)

    def follow(self, keep: float) -> None:
        """theta' <- keep theta' + (1 - keep) theta."""
        torch._foreach_lerp_(self._values, self._weights.masters, 1 - keep)

    def state_dict(self) -> dict[str, Tensor]:
        names = self._weights.names
        return {name: value.clone() for name, value in zip(names, self._values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the values of a teacher of the same parameters."""
        for name, value in zip(self._weights.names, self._values, strict=True):
            if state[name].shape != value.shape:
                raise ValueError(f"the state's teacher has another shape of parameter {name!r}")
            value.copy_(state[name])
