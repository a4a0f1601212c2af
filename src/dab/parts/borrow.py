"""Borrowing a model: set up for adaptation, then returned with every flag as it was."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from dab.parts.layers import norm_layers

__all__ = ["Borrowed"]

# Modules and parameters by identity, each with the Borrowed that it was lent to.
_LENT: MutableMapping[nn.Module | nn.Parameter, ref[Borrowed]] = WeakIdKeyDictionary()
_GUARD = threading.RLock()  # a signal handler may also wrap a model


class Removable(Protocol):
    """A change to a model that can be undone, such as a hook."""

    def remove(self) -> None: ...


class Borrowed:
    """A model in eval mode where only `trained` parameters take gradients, until `end`.

    A model is also returned when this object is garbage-collected.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.ended = False
        self._training = [(module, module.training) for module in model.modules()]
        self._requires_grad = [(p, p.requires_grad) for p in model.parameters()]
        self._hooks: list[Removable] = []
        self._lent: list[nn.Module | nn.Parameter] = []
        # Modules without numbers of their own, such as activations, may be in several models.
        lent: list[nn.Module | nn.Parameter] = [model]
        lent += [*filter(_has_numbers, model.modules()), *model.parameters()]
        with _GUARD:
            for thing in lent:
                owner = _LENT.get(thing, _nobody)()
                if owner is not None and not owner.ended:
                    raise RuntimeError(
                        "the model, or a part of it, already belongs to another adapter: call "
                        "detach() on that one first, or give each adapter its own copy, made with "
                        "copy.deepcopy(model) before the first adapter is created"
                    )
            self._lent = lent
            self._claim()

    def _claim(self) -> None:
        for thing in self._lent:
            _LENT[thing] = ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)  # a copy, of a model that was copied with it
        self._claim()

    def begin(self, trained: Iterable[nn.Parameter]) -> None:
        """Set the flags for adaptation."""
        self._hooks += [
            layer.register_forward_pre_hook(_contiguous_input, with_kwargs=True)
            for layer in norm_layers(self.model).values()
        ]
        self.model.eval().requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)

    def until_end(self, hooks: Iterable[Removable]) -> None:
        """Hooks on the model that are removed when it is returned."""
        self._hooks.extend(hooks)

    def end(self) -> None:
        """Restore every flag; does nothing the second time."""
        if self.ended:
            return
        for hook in self._hooks:
            hook.remove()
        for module, training in self._training:
            module.training = training
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)
        self.ended = True  # last: after an interrupt, the next call completes this

    def __del__(self) -> None:
        if self.__dict__.get("_lent"):
            self.end()


def _nobody() -> None:
    return None


def _has_numbers(module: nn.Module) -> bool:
    """Whether a module has parameters or buffers of its own."""
    return any(True for _ in itertools.chain(module.parameters(False), module.buffers(False)))


def _contiguous_input(
    layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Keeps torch from crashing in the backward of group normalization.

    On CPU (seen with torch 2.13) that backward segfaults if its input is channels-last and needs no
    gradient itself. The first norm of a conv net with frozen weights gets such an input if the
    images or the weights are channels-last. Any norm may call it, so all of them are guarded;
    without gradients, the layout is kept.
    """

    def contiguous(value: Any) -> Any:
        alone = isinstance(value, Tensor) and not value.requires_grad
        return value.contiguous() if alone and torch.is_grad_enabled() else value

    return tuple(map(contiguous, inputs)), {key: contiguous(named[key]) for key in named}
