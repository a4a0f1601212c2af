"""The optimizers that methods train with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

__all__ = ["OptimizerKind", "create_optimizer"]

OptimizerKind = Literal["sgd", "adam", "adamw"]


def create_optimizer(
    kind: OptimizerKind,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool = True,
) -> Callable[[list[Tensor]], torch.optim.Optimizer]:
    """Returns a function that creates an optimizer for given parameters.

    Args:
        kind: "sgd", "adam" or "adamw" (Adam with decoupled weight decay).
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam and AdamW.
        weight_decay: its coefficient.
        nesterov: whether SGD uses Nesterov momentum, if momentum > 0.

    >>> create = create_optimizer("adam", lr=1e-3, momentum=0.8, weight_decay=0.0)
    >>> create([torch.zeros(2)]).defaults["betas"]
    (0.8, 0.999)
    """
    if kind == "sgd":
        return partial(
            torch.optim.SGD,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov and momentum > 0,
        )
    adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return partial(adam, lr=lr, betas=(momentum, 0.999), weight_decay=weight_decay)
