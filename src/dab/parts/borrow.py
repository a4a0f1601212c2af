"""Borrowing a model: set up for adaptation, and given back with every flag as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dab.parts.layers import norm_layers

__all__ = ["Borrowed"]

_LENT: WeakSet[nn.Module] = WeakSet()


class Borrowed:
    """A model in eval mode where only `trained` parameters take gradients, until `end`."""

    def __init__(self, model: nn.Module, trained: Iterable[nn.Parameter]) -> None:
        if model in _LENT:
            warnings.warn(
                "the model is being adapted already: this adapter's source is what the other one "
                "has made of it; call detach() on the other one first",
                stacklevel=4,
            )
        _LENT.add(model)
        self.model = model
        self.ended = False
        self._training = [(module, module.training) for module in model.modules()]
        self._requires_grad = [(p, p.requires_grad) for p in model.parameters()]
        self._hooks = [
            layer.register_forward_pre_hook(_contiguous_input, with_kwargs=True)
            for layer in norm_layers(model).values()
        ]
        model.eval().requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)

    def until_end(self, hooks: Iterable[RemovableHandle]) -> None:
        """Hooks on the model that are removed when it is given back."""
        self._hooks.extend(hooks)

    def end(self) -> None:
        """Put every flag back; the second time, do nothing."""
        if self.ended:
            return
        self.ended = True
        _LENT.discard(self.model)
        for hook in self._hooks:
            hook.remove()
        for module, training in self._training:
            module.training = training
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)


def _contiguous_input(
    layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Keeps torch from crashing in the backward of group normalization.

    On CPU (seen with torch 2.13) that backward segfaults when its input is channels-last and needs
    no gradient itself: just what the first norm of a conv net with frozen weights gets from
    channels-last images, and from channels-last weights whatever the images are. Any norm may
    call it, so all of them are guarded; without a backward to come, the layout is kept.
    """

    def contiguous(value: Any) -> Any:
        alone = isinstance(value, Tensor) and not value.requires_grad
        return value.contiguous() if alone and torch.is_grad_enabled() else value

    return tuple(map(contiguous, inputs)), {key: contiguous(named[key]) for key in named}
