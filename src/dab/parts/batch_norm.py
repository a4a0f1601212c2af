"""Other statistics for BatchNorm layers, without touching the layers' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from dab.parts.layers import BatchNorm, batch_norms
from dab.parts.schema import Array
from dab.parts.transaction import Recorded

__all__ = [
    "Moments",
    "Renormalize",
    "RunningStatistics",
    "batch_moments",
    "mixed_moments",
    "renormalize",
    "source_statistics",
    "use_batch_statistics",
]

Moments = tuple[Tensor, Tensor]  # mean and variance, per channel or per sample and channel
MomentsOf = Callable[[str, BatchNorm, Tensor], "Moments | None"]  # of a layer's name, it, its input


_as_source: ContextVar[bool] = ContextVar("as_source", default=False)


@contextmanager
def source_statistics() -> Iterator[None]:
    """In this thread, all layers normalize with their own statistics, whatever the hooks say."""
    token = _as_source.set(True)
    try:
        yield
    finally:
        _as_source.reset(token)


class Renormalize:
    """Makes a BatchNorm layer normalize with the moments a function returns; a forward pre-hook.

    A layer in eval mode computes gamma (x - mean) / sqrt(var + eps) + beta with its running
    statistics. Passing it a shifted and scaled x has the effect of other statistics, for any
    subclass and whatever it does afterward; the layer's buffers do not change.
    """

    def __init__(self, name: str, moments: MomentsOf) -> None:
        self.name, self.moments = name, moments

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        assert isinstance(layer, BatchNorm)
        if _as_source.get():
            return None
        x = inputs[0].to(torch.promote_types(inputs[0].dtype, torch.float32))
        found = self.moments(self.name, layer, x)
        if found is None:
            return None
        mean, variance = (_per_channel(moment, x) for moment in found)
        running_mean, running_var = (_per_channel(moment, x) for moment in source_moments(layer))
        scale = ((running_var + layer.eps) / (variance + layer.eps)).sqrt()
        shifted = torch.addcmul(running_mean - mean * scale, x, scale)
        return (shifted.to(inputs[0].dtype), *inputs[1:])


def renormalize(model: nn.Module, moments: MomentsOf) -> list[RemovableHandle]:
    """Make every BatchNorm layer normalize with these moments, until the hooks are removed.

    Nothing changes where the moments are None, and in layers that track no statistics.
    """
    return [
        layer.register_forward_pre_hook(Renormalize(name, moments))
        for name, layer in batch_norms(model).items()
        if layer.running_mean is not None
    ]


def use_batch_statistics(model: nn.Module) -> list[RemovableHandle]:
    """Make every BatchNorm layer normalize with the statistics of its batch, until removed.

    The same as `renormalize` with `batch_moments`, but in torch's own kernel, which is several
    times as fast and keeps less for the backward pass.
    """
    return [
        layer.register_forward_pre_hook(_with_batch_statistics)
        for layer in batch_norms(model).values()
        if layer.running_mean is not None
    ]


def _with_batch_statistics(
    layer: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[Tensor, ...] | None:
    assert isinstance(layer, BatchNorm)
    x = inputs[0].to(torch.promote_types(inputs[0].dtype, torch.float32))
    if _as_source.get() or not _has_moments(x):
        return None
    mean, variance = (moment.to(x) for moment in source_moments(layer))
    # With the layer's own moments as scale and shift, which the layer removes again.
    scale = (variance + layer.eps).sqrt()
    shifted = F.batch_norm(x, None, None, scale, mean, training=True, eps=layer.eps)
    return (shifted.to(inputs[0].dtype), *inputs[1:])


def source_moments(layer: BatchNorm) -> Moments:
    """The running statistics of a BatchNorm layer."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var


def _per_channel(moment: Tensor, x: Tensor) -> Tensor:
    """(C,) or (n, C) shaped to broadcast over (n, C, ...)."""
    rows = moment if moment.ndim == 2 else moment[None]
    return rows.to(x).view(*rows.shape, *[1] * (x.ndim - 2))


def batch_moments(x: Tensor) -> Moments | None:
    """Mean and biased variance over the batch; None if there is only one value per channel."""
    if not _has_moments(x):
        return None
    if x.device.type in ("cpu", "cuda"):
        mean, variance = _Moments.apply(x)  # type: ignore[no-untyped-call]
    else:
        variance, mean = torch.var_mean(x, dim=[d for d in range(x.ndim) if d != 1], correction=0)
    return mean, variance


class _Moments(torch.autograd.Function):
    """`var_mean` over all but the channels, in the kernel of torch's own BatchNorm.

    On a CPU it is 2 to 20 times as fast, but torch gives it no gradient, and other devices lack it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Moments:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        ctx.save_for_backward(x, mean)
        return mean, variance

    @staticmethod
    def backward(ctx: Any, to_mean: Tensor, to_variance: Tensor) -> Tensor:
        x, mean = ctx.saved_tensors
        values = x.numel() // x.shape[1]
        # d mean / dx = 1 / values, d variance / dx = 2 (x - mean) / values
        slope = to_variance * (2 / values)
        shift = to_mean / values - slope * mean
        return torch.addcmul(_per_channel(shift, x), x, _per_channel(slope, x))


def mixed_moments(layer: BatchNorm, x: Tensor, alpha: float) -> Moments | None:
    """(1 - alpha) source + alpha batch; None if there is only one value per channel."""
    batch = batch_moments(x)
    if batch is None:
        return None
    mean, variance = (
        own.to(seen).lerp(seen, alpha)
        for own, seen in zip(source_moments(layer), batch, strict=True)
    )
    return mean, variance


def _has_moments(x: Tensor) -> bool:
    return x.numel() > x.shape[1]


class RunningStatistics(Recorded):
    """A mean and a variance for each BatchNorm layer of a model, starting at the source's."""

    def __init__(self, model: nn.Module) -> None:
        self._moments = {
            name: (source_moments(layer)[0].clone(), source_moments(layer)[1].clone())
            for name, layer in batch_norms(model).items()
            if layer.running_mean is not None
        }

    def __getitem__(self, name: str) -> Moments:
        return self._moments[name]

    def toward(self, name: str, batch: Moments, momentum: float) -> Moments:
        """Between these moments and those of a batch; the result carries the batch's gradient."""
        mean, variance = (
            (1 - momentum) * kept.to(seen) + momentum * seen
            for kept, seen in zip(self._moments[name], batch, strict=True)
        )
        return mean, variance

    def follow(self, name: str, batch: Moments, momentum: float) -> Moments:
        """Move toward the moments of a batch; returns them as `toward`."""
        mean, variance = self.toward(name, batch, momentum)
        self._moments = {**self._moments, name: (mean.detach(), variance.detach())}
        return mean, variance

    def state_dict(self) -> dict[str, list[Tensor]]:
        return {name: [m.clone() for m in moments] for name, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, list[Tensor]]) -> None:
        for name, (mean, _) in self._moments.items():
            shape = tuple(mean.shape)
            kinds = Array(shape), Array(shape, least=0)
            if len(state[name]) != 2 or not all(
                kind.fits(moment) for kind, moment in zip(kinds, state[name], strict=True)
            ):
                raise ValueError(
                    f"layer {name!r} needs a mean and a nonnegative variance of shape {shape}"
                )
        self._moments = {
            name: (
                state[name][0].to(mean.device, copy=True),
                state[name][1].to(mean.device, copy=True),
            )
            for name, (mean, _) in self._moments.items()
        }
