"""Borrowing a model: set up for adaptation, and given back with every flag as it was."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

__all__ = ["Loan"]


class Loan:
    """A model in eval mode where only `trained` parameters take gradients, until `end`."""

    def __init__(self, model: nn.Module, trained: Iterable[nn.Parameter]) -> None:
        self.model = model
        self.ended = False
        self._training = [(module, module.training) for module in model.modules()]
        self._requires_grad = [(p, p.requires_grad) for p in model.parameters()]
        self._hooks = [
            module.register_forward_pre_hook(_contiguous_input)
            for module in model.modules()
            if isinstance(module, nn.GroupNorm)
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
        for hook in self._hooks:
            hook.remove()
        for module, training in self._training:
            module.training = training
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)


def _contiguous_input(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    """Keeps torch from crashing in the backward of a GroupNorm.

    On CPU (seen with torch 2.13) that backward segfaults when the layer's input is channels-last
    and needs no gradient itself: just what the first norm of a conv net with frozen weights gets
    from channels-last images, and from channels-last weights whatever the images are.
    """
    features = inputs[0]
    if features.requires_grad or features.is_contiguous():
        return None
    return (features.contiguous(), *inputs[1:])
