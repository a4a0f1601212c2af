"""The few numbers a method trains: their source values, their optimiser, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Weights"]


class Weights:
    """Trained parameters of a model, changed in place, with their source values kept beside them.

    The optimiser works on `masters`: aliases of the parameters in float32 or wider. For a
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
                    f"parameter {name!r} was made under torch.inference_mode and can never be "
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
        self.optimizer = optimizer(self.masters) if self.masters else None

    @property
    def device(self) -> torch.device:
        """Where the trained parameters are now."""
        return self.parameters[0].device

    def step(self, loss: Tensor) -> bool:
        """One optimiser step down the loss; False, and nothing changed, if it is not finite.

        Gradients are taken without touching `.grad` of the model's own parameters.
        """
        if self.optimizer is None:
            raise ValueError("there are no parameters to train")
        if not loss.requires_grad:
            raise RuntimeError(
                "the loss does not depend on the trained parameters: does the model's forward "
                "disable gradients (torch.no_grad, torch.inference_mode, .detach())?"
            )
        if not torch.isfinite(loss):
            return False
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = None if gradient is None else gradient.to(master)
        present = [master.grad for master in self.masters if master.grad is not None]
        finite = bool(torch.isfinite(nn.utils.get_total_norm(present)))
        if finite:
            self.optimizer.step()
            self._write_back()
        self.optimizer.zero_grad()
        return finite

    def ensemble(self, keep: float) -> None:
        """Pull the weights softly back to the source: theta <- keep theta + (1 - keep) theta_0."""
        torch._foreach_lerp_(self.masters, self.source, 1 - keep)
        self._write_back()

    def restore(self) -> None:
        """Source values, and an optimiser that remembers nothing."""
        torch._foreach_copy_(self.masters, self.source)
        self._write_back()
        if self.optimizer is not None:
            self.optimizer.state.clear()

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Value and optimiser state of every trained parameter, by parameter name."""
        return {
            name: {"value": master.detach().clone(), **self._remembered(master)}
            for name, master in zip(self.names, self.masters, strict=True)
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over a state; a ValueError before anything changes if it is of other parameters."""
        if state.keys() != set(self.names):
            odd = sorted(state.keys() ^ set(self.names))
            raise ValueError(f"the state is of other parameters: only one side has {odd[:5]}")
        for name, master in zip(self.names, self.masters, strict=True):
            for key, tensor in state[name].items():
                if not isinstance(tensor, Tensor) or tensor.shape not in (master.shape, ()):
                    raise ValueError(
                        f"the state's {key} of parameter {name!r} does not fit its shape "
                        f"{tuple(master.shape)}"
                    )
            if state[name]["value"].shape != master.shape:
                raise ValueError(f"the state has no value of parameter {name!r}")
        for name, master in zip(self.names, self.masters, strict=True):
            master.copy_(state[name]["value"])
            if self.optimizer is not None:
                self.optimizer.state[master] = {
                    key: tensor.clone() if tensor.ndim == 0 else tensor.to(master, copy=True)
                    for key, tensor in state[name].items()
                    if key != "value"
                }
        self._write_back()

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
