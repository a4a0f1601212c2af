"""Tensors that belong to named parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

__all__ = ["NamedTensors"]


class NamedTensors:
    """A tensor for each of some names and shapes, or for none; saved and restored by name."""

    def __init__(self, shapes: Mapping[str, torch.Size], tensors: Sequence[Tensor] = ()) -> None:
        self.shapes = dict(shapes)
        self.tensors = list(tensors)

    def state_dict(self) -> dict[str, Tensor]:
        names = self.shapes if self.tensors else ()
        return {name: tensor.clone() for name, tensor in zip(names, self.tensors, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load tensors of the same names and shapes, or none."""
        if not isinstance(state, Mapping) or not all(t.is_floating_point() for t in state.values()):
            raise ValueError("it should have tensors of floats by name")
        if state and {name: tensor.shape for name, tensor in state.items()} != self.shapes:
            raise ValueError(f"it has tensors of other names or shapes: {sorted(state)[:5]}")
        self.tensors = [state[name].clone() for name in self.shapes] if state else []
