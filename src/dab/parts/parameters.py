"""The parameters that a method trains: their source values, optimizer and rollback."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dab.parts.transaction import AtEnd, Recorded
from dab.parts.validation import check_names

__all__ = ["TrainedParameters", "bernoulli", "total_norm"]


def total_norm(gradients: Iterable[Tensor | None]) -> Tensor:
    """Norm of all gradients, concatenated into one vector."""
    return nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None])


def bernoulli(count: int, probability: float, generator: torch.Generator) -> Tensor:
    """The positions of the successes in `count` independent trials, in ascending order.

    Draws the gaps between successes, which are geometric, so that a rare event among millions of
    parameters costs as many draws as it has successes.

    >>> positions = bernoulli(1_000_000, 0.001, torch.Generator().manual_seed(0))
    >>> 900 < len(positions) < 1100, bool(positions[-1] < 1_000_000)
    (True, True)
    """
    if probability <= 0:
        return torch.empty(0, dtype=torch.int64)
    if probability >= 1:
        return torch.arange(count)
    positions = torch.tensor([-1])
    while positions[-1] < count:
        draws = 16 + int(1.2 * probability * (count - int(positions[-1])))
        uniform = 1 - torch.rand(draws, generator=generator, dtype=torch.float64)  # in (0, 1]
        gaps = 1 + (uniform.log() / math.log1p(-probability)).floor().clamp(max=count).long()
        positions = torch.cat([positions, positions[-1] + gaps.cumsum(0)])
    return positions[1:][positions[1:] < count]


@dataclass
class _Values:
    """Masters and optimizer state, copied before they change."""

    masters: list[Tensor]
    optimizer: dict[Tensor, dict[str, Any]]


@dataclass
class _Token:
    """What a rollback needs: filled in just before something changes."""

    values: _Values | None = None
    before_step: list[Tensor] | None = None  # the masters before the last step
    swapped: Sequence[tuple[nn.Parameter, Tensor]] = ()


class TrainedParameters(Recorded):
    """Trained parameters of a model, changed in place, with their source values.

    The optimizer works on `masters`: aliases of the parameters in float32 or wider. For a
    half-precision model they are float32 copies that are written back after every change, since a
    step of 1e-4 on a scale near 1 is lost in float16 and bfloat16.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
    ) -> None:
        for name, parameter in parameters.items():
            if parameter.is_inference():
                raise ValueError(
                    f"parameter {name!r} was created under torch.inference_mode and cannot be "
                    "trained: build the model outside of it"
                )
        self.names = list(parameters)
        self.parameters = list(parameters.values())
        with torch.inference_mode(False):
            self.masters = [
                parameter.detach()
                .to(torch.promote_types(parameter.dtype, torch.float32))
                .requires_grad_()
                for parameter in self.parameters
            ]
            self.source = [master.detach().clone() for master in self.masters]
        self.create_optimizer = optimizer
        self.optimizer = optimizer(self.masters) if self.masters else None
        self.learning_rate: float = self.optimizer.defaults["lr"] if self.optimizer else 0.0
        self.rate = 1.0  # its factor; a guard sets it anew for each call
        self._known_entries: dict[torch.dtype, dict[str, tuple[torch.dtype, bool]]] = {}
        self._source_norm: float | None = None
        self._token = _Token()
        self._recording = False

    @property
    def device(self) -> torch.device:
        """Where the trained parameters are now."""
        return self.parameters[0].device

    @property
    def source_parameters(self) -> dict[str, Tensor]:
        """The source values by parameter name, in the model's own precision."""
        return self.named(self.source)

    def named(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """One value for each parameter, by its name and in its precision and place."""
        return {
            name: value.to(parameter)
            for name, value, parameter in zip(self.names, values, self.parameters, strict=True)
        }

    def distance(self) -> float:
        """How far the values are from the source, relative to the source's own norm."""
        return self._distance_to(self.source)

    def update_norm(self) -> float:
        """How far the values are from where the call's last step began; 0 without a step.

        Relative to the source's norm. A return to the source is not a step.
        """
        before = self._token.before_step
        return 0.0 if before is None else self._distance_to(before)

    def _distance_to(self, values: list[Tensor]) -> float:
        moved = torch._foreach_sub([master.detach() for master in self.masters], values)
        if self._source_norm is None:
            self._source_norm = float(total_norm(self.source))
        return float(total_norm(moved)) / (self._source_norm or 1.0)

    def gradients(self, loss: Tensor) -> list[Tensor | None] | None:
        """The loss's gradient for every master; None if loss or gradient is not finite.

        Leaves `.grad` of the model's own parameters alone.
        """
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss does not depend on the trained parameters: does the model's forward "
                "disable gradients (torch.no_grad, torch.inference_mode, .detach())?"
            )
        if not torch.isfinite(loss):
            return None
        found: list[Tensor | None] = [
            None if gradient is None else gradient.to(master)
            for master, gradient in zip(self.masters, self._differentiated(loss), strict=True)
        ]
        if all(gradient is None for gradient in found):
            raise RuntimeError(
                "the model's output does not depend on any trained parameter: were the model's "
                "parameters replaced after it was wrapped?"
            )
        return found if torch.isfinite(total_norm(found)) else None

    def _differentiated(self, loss: Tensor) -> Sequence[Tensor | None]:
        return torch.autograd.grad(loss, self.parameters, allow_unused=True)

    def step(self, gradients: Sequence[Tensor | None]) -> bool:
        """One step of the optimizer. False, with the step undone, if a number is not finite."""
        assert self.optimizer is not None, "there are no parameters to train"
        before = self._copy()
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = gradient
        finite = self._stepped()
        self.optimizer.zero_grad()
        if not finite:
            self._return_to(before)
        elif self._recording:
            self._token.before_step = before.masters
        return finite

    def _stepped(self) -> bool:
        assert self.optimizer is not None
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * self.learning_rate
        try:
            self.optimizer.step()
        except RuntimeError as error:
            if "without overflow" not in str(error):  # how torch refuses a factor beyond float32
                raise
            return False
        self._write_back()
        return self._is_finite()

    def _is_finite(self) -> bool:
        """Whether all values and what the optimizer remembers of them are finite numbers."""
        assert self.optimizer is not None
        remembered = [
            value
            for state in self.optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor) and value.is_floating_point()
        ]
        values = [master.detach() for master in self.masters]
        values += [
            p.detach()
            for p, m in zip(self.parameters, self.masters, strict=True)
            if p.dtype != m.dtype
        ]
        # The norm carries every NaN and infinity, and is fast. Only if it is not finite, which may
        # be an overflow of the norm itself, every number is checked.
        norms = torch._foreach_norm(values + remembered)
        if torch.isfinite(torch.stack([norm.cpu().double() for norm in norms])).all():
            return True
        return all(bool(torch.isfinite(value).all()) for value in values + remembered)

    def swapped(self, values: Iterable[tuple[nn.Parameter, Tensor]]) -> AtEnd:
        """Other values for some parameters of the model, for a forward pass without gradients.

        Swaps pointers, and puts them back: nothing is copied.
        """
        pairs = list(values)
        originals = [(parameter, parameter.data) for parameter, _ in pairs]
        self._token.swapped = originals  # before the first is swapped
        for parameter, value in pairs:
            parameter.data = value
        return AtEnd(partial(self._unswap, self._token))

    @staticmethod
    def _unswap(token: _Token) -> None:
        for parameter, original in token.swapped:
            parameter.data = original
        token.swapped = ()

    def savepoint(self) -> _Token:
        self._token, self._recording = _Token(), True
        return self._token

    def rollback(self, token: _Token) -> None:
        self._unswap(token)
        for master in self.masters:
            master.grad = None
        if token.values is not None:
            self._return_to(token.values)

    def release(self) -> None:
        self._token, self._recording = _Token(), False

    def _copy(self) -> _Values:
        """The values as they are, before they change; the first copy since the savepoint stays."""
        masters = [master.detach().clone() for master in self.masters]
        state = {} if self.optimizer is None else _cloned(self.optimizer.state)
        copied = _Values(masters, state)
        if self._recording and self._token.values is None:
            self._token.values = copied
        return copied

    def _before_change(self) -> None:
        if self._recording and self._token.values is None:
            self._copy()

    def _return_to(self, values: _Values) -> None:
        self._set(values.masters)
        if self.optimizer is not None:
            state = _cloned(values.optimizer)  # the copy may be needed again
            self.optimizer.state.clear()
            self.optimizer.state.update(state)

    @torch.no_grad()  # also at the end of a block with gradients
    def _set(self, masters: list[Tensor]) -> None:
        torch._foreach_copy_(self.masters, masters)
        self._write_back()

    def moved(self, directions: Sequence[Tensor | None], distance: float) -> AtEnd:
        """The weights moved along some directions, and put back exactly afterward."""
        here = self._copy().masters
        for master, direction in zip(self.masters, directions, strict=True):
            if direction is not None:
                master.add_(direction, alpha=distance)
        self._write_back()
        return AtEnd(partial(self._set, here))

    def ensemble(self, keep: float, others: list[Tensor] | None = None) -> None:
        """Average the weights with others: theta <- keep theta + (1 - keep) theta_0.

        By default, the others are the source weights.
        """
        self._before_change()
        torch._foreach_lerp_(self.masters, self.source if others is None else others, 1 - keep)
        self._write_back()

    def restore_some(self, probability: float, generator: torch.Generator) -> None:
        """Reset each single number to its source value with this probability."""
        self._before_change()
        for master, source in zip(self.masters, self.source, strict=True):
            chosen = bernoulli(master.numel(), probability, generator).to(master.device)
            index = torch.unravel_index(chosen, master.shape)  # whatever the memory layout
            master[index] = source[index]
        self._write_back()

    def restore(self) -> None:
        """Restore the source values and clear the optimizer's state."""
        if self.optimizer is not None:
            self._before_change()
            self._set(self.source)
            self.optimizer.state.clear()
            self._token.before_step = None

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Value and optimizer state of every trained parameter, by parameter name."""
        return {
            name: {"value": master.detach().clone(), **self._remembered(master)}
            for name, master in zip(self.names, self.masters, strict=True)
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Load a state; a ValueError before anything changes if it has other parameters."""
        self.check_state_dict(state)
        self._before_change()
        for name, master in zip(self.names, self.masters, strict=True):
            master.copy_(state[name]["value"])
            if self.optimizer is not None:
                self.optimizer.state[master] = {
                    key: tensor.clone() if tensor.ndim == 0 else tensor.to(master, copy=True)
                    for key, tensor in state[name].items()
                    if key != "value"
                }
        self._write_back()

    def check_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Refuse names, shapes, precisions and optimizer entries other than these parameters'."""
        try:
            check_names(state, self.names)
        except ValueError as error:
            raise ValueError(f"the state has other parameters: {error}") from error
        for name, master in zip(self.names, self.masters, strict=True):
            found = {key: _kind(tensor) for key, tensor in state[name].items()}
            value = {"value": (master.dtype, master.shape)}
            entries = {
                key: (dtype, torch.Size() if single else master.shape)
                for key, (dtype, single) in self._entries(master.dtype).items()
            }
            if found not in (value, value | entries):
                raise ValueError(f"parameter {name!r} has {found}, not {value | entries}")
            counts = [t for key, t in state[name].items() if key != "value" and t.ndim == 0]
            if any(count < 0 for count in counts if count.shape != master.shape):
                raise ValueError(f"parameter {name!r} has a negative count of steps")

    def _entries(self, dtype: torch.dtype) -> dict[str, tuple[torch.dtype, bool]]:
        """What the optimizer remembers of a parameter: dtype, and whether it is a single number."""
        if self.optimizer is None:
            return {}
        if dtype not in self._known_entries:
            probe = torch.zeros(2, dtype=dtype, requires_grad=True)
            probe.grad = torch.zeros_like(probe)
            (group,) = self.optimizer.param_groups
            taken = inspect.signature(type(self.optimizer)).parameters.keys() - {"params"}
            options = {key: value for key, value in group.items() if key in taken}
            optimizer = type(self.optimizer)([probe], **options)
            optimizer.step()
            self._known_entries[dtype] = {
                key: (value.dtype, value.ndim == 0)
                for key, value in optimizer.state[probe].items()
                if isinstance(value, Tensor)
            }
        return self._known_entries[dtype]

    def _remembered(self, master: Tensor) -> dict[str, Tensor]:
        if self.optimizer is None:
            return {}
        remembered = self.optimizer.state.get(master, {})
        # SGD holds None where it has no momentum yet, which is what a missing entry means too.
        return {key: value.clone() for key, value in remembered.items() if value is not None}

    def _write_back(self) -> None:
        """Parameters that are no longer (or never were) aliases of their masters get the values.

        That is the case for half precision, and after the model was moved or copied.
        """
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if parameter.data_ptr() != master.data_ptr():
                parameter.copy_(master)


def _kind(value: Any) -> tuple[torch.dtype, torch.Size] | str:
    return (value.dtype, value.shape) if isinstance(value, Tensor) else type(value).__name__


def _cloned(state: Mapping[Tensor, Mapping[str, Any]]) -> dict[Tensor, dict[str, Any]]:
    """A copy of an optimizer's state."""
    return {
        master: {
            key: value.clone() if isinstance(value, Tensor) else value
            for key, value in remembered.items()
        }
        for master, remembered in state.items()
    }
