"""Forward passes of a model, as it is or with other values for some of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from dab.parts.parameters import TrainedParameters

__all__ = ["Network", "to_eval"]


class Network:
    """Runs the model of an adapter. A fleet has another one, which runs many streams at once."""

    def __init__(self, model: nn.Module, trained: TrainedParameters) -> None:
        self.model, self.trained = model, trained

    def __call__(self, images: Tensor, parameters: Mapping[str, Tensor] | None) -> Any:
        """What the model returns, with other values for some parameters if given."""
        to_eval(self.model)
        if parameters is None:
            return self.model(images)
        named = dict(self.model.named_parameters())
        with self.trained.swapped((named[name], value) for name, value in parameters.items()):
            return self.model(images)


def to_eval(model: nn.Module) -> None:
    """Back to eval mode, if train() was called in the meantime."""
    if any(module.training for module in model.modules()):
        model.eval()
