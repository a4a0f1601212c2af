"""Tensors that belong to named parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

__all__ = ["NamedTensors"]


class NamedTensors:
    """A tensor for every one of some names, or for none; saved and restored by name."""

    def __init__(self, names: Sequence[str], tensors: Sequence[Tensor] = ()) -> None:
        self.names = list(names)
        self.tensors = list(tensors)

    def state_dict(self) -> dict[str, Tensor]:
        names = self.names if self.tensors else []
        return {name: tensor.clone() for name, tensor in zip(names, self.tensors, strict=True)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over tensors of the same names, whether there were any before or not."""
        if state and state.keys() != set(self.names):
            raise ValueError(f"the state has tensors for other names: {sorted(state)[:5]}")
        self.tensors = [state[name].clone() for name in self.names] if state else []
