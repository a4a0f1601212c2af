"""Where a run computes, and how precisely."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

__all__ = ["Compute", "Precision"]

Precision = Literal["fp32", "bf16", "fp16"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Compute:
    """A device, a precision, whether the model is compiled, and threads.

    Args:
        device: as torch names it: "cpu", "cuda", "cuda:1", "mps".
        precision: of matrix products and convolutions; weights and normalization stay in fp32.
        compile: whether torch compiles the model first.
        threads: of torch in a run.

    >>> Compute(precision="fp8")
    Traceback (most recent call last):
    ValueError: precision must be one of ('fp32', 'bf16', 'fp16'), got 'fp8'
    """

    device: str = "cpu"
    precision: Precision = "fp32"
    compile: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision must be one of {get_args(Precision)}, got {self.precision!r}"
            )
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    def check(self) -> None:
        """Refuse a device that this machine does not have; a cluster's other machines may."""
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError) as error:  # how torch says that it has none
            reason = str(error).splitlines()[0].partition(". ")[0]
            raise ValueError(f"there is no device {self.device!r} here: {reason}") from error

    @property
    def is_cpu(self) -> bool:
        return torch.device(self.device).type == "cpu"

    @property
    def readers(self) -> int:
        """Processes that read images ahead: on a CPU the model needs the cores itself."""
        return 1 if self.is_cpu else min(8, os.cpu_count() or 1)

    @property
    def card(self) -> dict[str, Any]:
        """What figures depend on: not which of several devices of a kind it was.

        On a processor, the number of threads shows in their last bits.
        """
        card = {**asdict(self), "device": torch.device(self.device).type}
        if not self.is_cpu:
            del card["threads"]
        return card

    @contextmanager
    def threading(self) -> Iterator[None]:
        """As many threads as a run has to have, and then as many as there were."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def prepare(self, model: nn.Module) -> nn.Module:
        """The model on the device, in the precision; its parameters keep their names if they can.

        Compiled in place, since torch.compile would put a prefix before every name.
        """
        self.check()
        model = model.to(self.device)
        if self.compile:
            model.compile()
        return model if self.precision == "fp32" else Autocast(model, DTYPES[self.precision])


class Autocast(nn.Module):
    """A model whose matrix products and convolutions run in half precision; its logits do not."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, images: Tensor) -> Tensor:
        with torch.autocast(images.device.type, self.dtype):
            logits: Tensor = self.model(images)
        return logits.float()
