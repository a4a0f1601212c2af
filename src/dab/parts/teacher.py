"""A teacher: a second set of the trained parameters that slowly follows the student."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dab.parts.parameters import TrainedParameters
from dab.parts.transaction import Recorded

__all__ = ["Teacher"]


class Teacher(Recorded):
    """A second set of values for the trained parameters, which starts at the source.

    The rest of the network is shared: `adapter.run(images, teacher.parameters)` swaps the values
    in for one pass, so that no copy of the whole network is needed.
    """

    def __init__(self, weights: TrainedParameters) -> None:
        self._weights = weights
        self._values = [source.clone() for source in weights.source]

    @property
    def values(self) -> list[Tensor]:
        """The values, in float32 or wider."""
        return self._values

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The values by parameter name, in the model's own precision."""
        return self._weights.named(self._values)

    def follow(self, keep: float, others: Sequence[Tensor] | None = None) -> None:
        """theta' <- keep theta' + (1 - keep) theta, or other values if given."""
        values = self._weights.masters if others is None else others
        detached = [value.detach() for value in values]
        self._values = list(torch._foreach_lerp(self._values, detached, 1 - keep))

    def state_dict(self) -> dict[str, Tensor]:
        names = self._weights.names
        return {name: value.clone() for name, value in zip(names, self._values, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the values of a teacher of the same parameters."""
        for name, value in zip(self._weights.names, self._values, strict=True):
            if state[name].shape != value.shape:
                raise ValueError(f"the state's teacher has another shape of parameter {name!r}")
        pairs = zip(self._weights.names, self._values, strict=True)
        self._values = [state[name].to(value, copy=True) for name, value in pairs]
