"""Features: what a classifier's last layer sees of each image."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from dab.parts.transaction import Recorded

__all__ = ["FeatureSource", "Features", "check_source", "eager_attributes"]

FeatureSource = Callable[[Tensor], Tensor] | str | None


class Features(Recorded):
    """Reads features from a model's forward passes.

    Args:
        model: the classifier.
        source: None takes the input of the last linear layer that runs on one row per image: the
            classifier's, in timm, torchvision, Hugging Face and plain Sequential models alike. A
            layer's name takes that layer's output; a callable is called with the images.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 5))
    >>> images = torch.rand(2, 3, 2, 2)
    >>> logits, features = Features(model)(images, lambda: model(images))
    >>> logits.shape, features.shape
    (torch.Size([2, 5]), torch.Size([2, 12]))
    """

    def __init__(self, model: nn.Module, source: FeatureSource = None) -> None:
        check_source(model, source)
        self.source = source
        self.classifier: nn.Linear | None = None  # the layer whose input was tapped last
        self._seen: list[Any] = []
        self._numbering = False
        self._model = model
        self._replaced: list[tuple[nn.Module, str, Any]] = []  # attributes of compiled modules
        named = dict(model.named_modules())
        self._layers = (
            [named[source]]
            if isinstance(source, str)
            else [layer for layer in named.values() if source is None and _is_linear(layer)]
        )
        if not self._layers and source is None:
            raise ValueError(
                f"{type(model).__name__} has no linear classifier whose input could be its "
                "features: pass the name of the layer before it, or a callable, as features=..."
            )

    def __call__(self, images: Tensor, forward: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """What a forward pass over these images returns, and their (n, d) features in it."""
        if callable(self.source):
            return forward(), _rows(self.source(images), len(images), "features=")
        seen: list[Any] = []
        self._seen = seen
        self._uncompile()
        for layer in self._layers:
            layer.register_forward_hook(self._tap)
        try:
            output = forward()
        finally:
            self.rollback()
        if not seen:
            raise ValueError(
                "no linear layer got one row of features per image: pass the name of the layer "
                "before the classifier, or a callable, as features=..."
            )
        where = "the classifier's input" if self.source is None else f"layer {self.source!r}"
        return output, _rows(seen[-1], len(images), where)

    def rows(self, images: Tensor, forward: Callable[[], Tensor]) -> Tensor | None:
        """Which rows of the last `classifier` the logits are, as a model may leave out some.

        Found by having that layer return the numbers of its rows. None if the logits are anything
        else than some of its outputs.
        """
        if self.classifier is None:
            return None
        self._numbering = True
        logits, _ = self(images, forward)
        numbers = logits[0].tolist()
        if len(set(numbers)) < len(numbers) or set(numbers) - set(
            range(self.classifier.out_features)
        ):
            return None
        return logits[0].long()

    def savepoint(self) -> None:
        """Between calls, no hook is in place."""

    def rollback(self, token: None = None) -> None:
        """Remove the hooks of a forward pass, finished or interrupted, and compile again."""
        self._seen, self._numbering = [], False
        for module, name, value in self._replaced:
            if value is _ABSENT:
                vars(module).pop(name, None)
            else:
                vars(module)[name] = value
        self._replaced = []
        for layer in self._layers:
            for key, hook in list(layer._forward_hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    del layer._forward_hooks[key]

    def _uncompile(self) -> None:
        """Let compiled modules run eagerly: compiled, they ignore hooks that were added later.

        By their own attributes, not by the stance of the compiler, which all threads share.
        """
        eager = [
            (module, name, value)
            for module in self._model.modules()
            for name, value in eager_attributes(module).items()
        ]
        self._replaced = [(m, name, vars(m).get(name, _ABSENT)) for m, name, _ in eager]
        for module, name, value in eager:
            vars(module)[name] = value

    def _tap(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor | None:
        if self.source is not None:
            self._seen.append(output)
        elif inputs and inputs[0].ndim == 2:  # not a linear layer over tokens
            assert isinstance(layer, nn.Linear)
            self._seen.append(inputs[0])
            if not self._numbering:
                self.classifier = layer
            elif layer is self.classifier:
                numbers = torch.arange(layer.out_features, device=output.device)
                return numbers.to(torch.float32).expand(len(output), -1)
        return None


def check_source(model: nn.Module, source: FeatureSource) -> None:
    """Refuse the name of a layer that the model does not have."""
    named = dict(model.named_modules())
    if isinstance(source, str) and source not in named:
        raise ValueError(
            f"features={source!r} is not a layer of the model; its last are {list(named)[-5:]}"
        )


_ABSENT = object()


def eager_attributes(module: nn.Module) -> dict[str, Any]:
    """What to set on a module for it to run eagerly; nothing if it is not compiled."""
    eager: dict[str, Any] = {}
    if module._compiled_call_impl is not None:  # by module.compile()
        eager["_compiled_call_impl"] = None
    forward = module.forward
    plain = getattr(forward, "_torchdynamo_orig_callable", None)
    if plain is not None:  # by torch.compile, of the module or of its method
        of_class = isinstance(forward, MethodType) and "forward" not in vars(module)
        eager["forward"] = plain.__get__(module) if of_class else plain
    return eager


def _rows(features: Any, count: int, where: str) -> Tensor:
    if not isinstance(features, Tensor) or features.ndim < 2 or len(features) != count:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"{where} must return one row of features per image, ({count}, ...), got {got}"
        )
    return features.flatten(1)


def _is_linear(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear)
