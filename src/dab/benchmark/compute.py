"""The device, precision and threads of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

__all__ = ["Compute", "Precision", "check_device"]

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Compute:
    """What a run computes on.

    Args:
        device: as torch names it: "cpu", "cuda", "cuda:1", "mps".
        precision: of matrix products and convolutions; weights and normalization stay in fp32.
        compile: whether to compile the model with `torch.compile`.
        threads: torch threads per run.

    >>> Compute(precision="fp8")
    Traceback (most recent call last):
    ValueError: precision must be one of ('fp32', 'bf16'), got 'fp8'
    """

    device: str = "cpu"
    precision: Precision = "fp32"
    compile: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        if self.precision == "fp16":  # type: ignore[comparison-overlap]
            raise ValueError(
                "precision 'fp16' is not supported: losses are not scaled, so small gradients "
                "would vanish; use 'bf16', which has the range of fp32"
            )
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision must be one of {get_args(Precision)}, got {self.precision!r}"
            )
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    def check(self) -> None:
        """Refuse a device that this machine does not have."""
        check_device(self.device)

    @property
    def is_cpu(self) -> bool:
        return torch.device(self.device).type == "cpu"

    @property
    def readers(self) -> int:
        """Processes that prefetch images: on a CPU the model needs the cores itself."""
        return 1 if self.is_cpu else min(8, os.cpu_count() or 1)

    @property
    def card(self) -> dict[str, Any]:
        """What results depend on: the kind of device, not which of several it was.

        On a CPU, the number of threads changes their last bits.
        """
        card = {**asdict(self), "device": torch.device(self.device).type}
        if not self.is_cpu:
            del card["threads"]
        return card

    @contextmanager
    def threading(self) -> Iterator[None]:
        """Use the run's number of threads, then restore the previous one."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model on the device, in the precision.

        Compiled in place, since torch.compile would prefix every parameter's name.
        """
        self.check()
        model = model.to(self.device)
        if self.compile:
            model.compile()
        return model if self.precision == "fp32" else Autocast(model)


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # what torch raises
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"no device {device!r} on this machine: {reason}") from error


class Autocast(nn.Module):
    """Runs matrix products and convolutions in bfloat16; logits are fp32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, torch.bfloat16):
            logits: Tensor = self.model(images)
        return logits.float()
