"""Counts the passes that a method makes."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["PassCounter"]


class PassCounter:
    """Counts the images that go through a model, forward and backward, from now on.

    >>> import torch
    >>> model = nn.Linear(4, 2)
    >>> passes = PassCounter(model)
    >>> model(torch.rand(8, 4)).sum().backward()
    >>> passes.forwards, passes.backwards
    (8, 8)
    """

    def __init__(self, model: nn.Module) -> None:
        self.forwards = self.backwards = 0
        model.register_forward_hook(self._forward)

    def _forward(self, model: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        self.forwards += len(logits)
        if logits.requires_grad:
            logits.register_hook(self._backward)  # type: ignore[no-untyped-call]

    def _backward(self, gradient: Tensor) -> None:
        self.backwards += len(gradient)
