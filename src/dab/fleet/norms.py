"""Normalization layers in which every image of a batch has its own scale and shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dab.parts.layers import TORCH_NORMS, norm_layers

__all__ = ["OwnValues", "Slot", "Values", "give_own_values"]

PER_FEATURE = (nn.LayerNorm, nn.RMSNorm)  # scale the last dimensions; the others, the second one


@dataclass
class Values:
    """Values of some parameters, by name, in a pass over a batch.

    Args:
        images: in the batch.
        groups: into which the batch is divided, of as many consecutive images each.
        stacks: the values of a parameter for all groups, (groups, ...).
    """

    images: int
    groups: int
    stacks: Mapping[str, Tensor]


class Slot:
    """Where the layers of a model look for values; None: they use their own."""

    values: Values | None = None


class OwnValues:
    """The forward of a normalization layer, with values from a slot; see `give_own_values`."""

    def __init__(self, name: str, layer: nn.Module, names: Mapping[str, str], slot: Slot) -> None:
        self.name, self.layer, self.slot = name, layer, slot
        self.names = names  # of its parameters in the model
        # What these return is normalized, times weight, plus bias. Subclasses may do more.
        self.is_torchs = any(type(layer).forward is kind.forward for kind in TORCH_NORMS)

    def remove(self) -> None:
        """Give the layer its own forward back."""
        vars(self.layer).pop("forward", None)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        values = self.slot.values
        if values is None:
            return type(self.layer).forward(self.layer, *inputs, **named)
        own = {name: values.stacks[full] for name, full in self.names.items()}
        if values.groups == 1:
            return self._with({name: stack[0] for name, stack in own.items()}, inputs, named)

        def grouped(value: Any) -> Any:
            return self._grouped(value, values) if isinstance(value, Tensor) else value

        if self.is_torchs:
            nothing = dict.fromkeys(self.layer._parameters)
            normalized = grouped(self._with(nothing, inputs, named))
            return self._scaled(normalized, own).flatten(0, 1)
        arguments = tree_map(grouped, (inputs, named))
        mapped = tree_map(lambda value: 0 if isinstance(value, Tensor) else None, arguments)
        return torch.vmap(lambda own, arguments: self._with(own, *arguments), (0, mapped))(
            own, arguments
        ).flatten(0, 1)

    def _with(self, values: Mapping[str, Any], inputs: Any, named: Any) -> Any:
        """What the layer returns with other values of its parameters.

        By a double of the layer, which is dropped: nothing has to be put back.
        """
        double = object.__new__(type(self.layer))
        vars(double).update(vars(self.layer))
        vars(double)["_parameters"] = {**self.layer._parameters, **values}
        return type(self.layer).forward(double, *inputs, **named)

    def _grouped(self, x: Tensor, values: Values) -> Tensor:
        """(groups, rows, ...), where the rows of an image are next to each other."""
        if not x.ndim or x.shape[0] % values.images:
            raise ValueError(
                f"normalization layer {self.name!r} gets an input of shape {tuple(x.shape)}, whose "
                f"first dimension is not the {values.images} images: a fleet cannot tell which "
                "values belong to which image, so use one adapter per stream"
            )
        return torch.unflatten(x, 0, (values.groups, -1))

    def _scaled(self, x: Tensor, own: Mapping[str, Tensor]) -> Tensor:
        parameters = {k: v[None] for k, v in self.layer._parameters.items() if v is not None}
        scale, shift = (
            self._aligned(value, x)
            if (value := {**parameters, **own}.get(name)) is not None
            else None
            for name in ("weight", "bias")
        )
        if scale is None:
            return x if shift is None else x + shift
        return x * scale if shift is None else torch.addcmul(shift, x, scale)

    def _aligned(self, stack: Tensor, x: Tensor) -> Tensor:
        """(groups, ...) shaped to broadcast over (groups, rows, ...)."""
        groups, *shape = stack.shape
        if isinstance(self.layer, PER_FEATURE):
            return stack.view(groups, *[1] * (x.ndim - 1 - len(shape)), *shape)
        return stack.view(groups, 1, *shape, *[1] * (x.ndim - 3))


def give_own_values(
    model: nn.Module, trained: Mapping[str, nn.Parameter], slot: Slot
) -> list[OwnValues]:
    """Let the normalization layers of a model take their trained parameters from a slot.

    Until these are removed. A layer of any class will do, as long as the first dimension of its
    input is that of the images, or of a number of rows for each.
    """
    full_names = {id(parameter): name for name, parameter in trained.items()}
    given = []
    for layer_name, layer in norm_layers(model).items():
        names = {
            name: full_names[id(parameter)]
            for name, parameter in layer.named_parameters(recurse=False)
            if id(parameter) in full_names
        }
        if names:
            given.append(own := OwnValues(layer_name, layer, names, slot))
            vars(layer)["forward"] = own
    return given
