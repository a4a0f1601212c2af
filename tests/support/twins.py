"""Parts of the slow twins of methods, written with loops over samples, classes and channels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import dab
from tests.support.nets import stream

ATOL = 1e-9


def log_softmax(row: Sequence[Tensor]) -> list[Tensor]:
    highest = max(z.item() for z in row)
    total = sum((z - highest).exp() for z in row)
    return [z - highest - total.log() for z in row]


def softmax(row: Sequence[Tensor]) -> list[Tensor]:
    return [log_p.exp() for log_p in log_softmax(row)]


def entropy(row: Sequence[Tensor]) -> Tensor:
    return -sum(log_p.exp() * log_p for log_p in log_softmax(row))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (sum(x * x for x in a) ** 0.5 * sum(y * y for y in b) ** 0.5)


def column_means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


class Twin:
    """A net of its own in eval mode, the affine parameters of its norms, and SGD by hand."""

    def __init__(self, model: nn.Module, lr: float, nesterov: bool = True) -> None:
        self.net = deepcopy(model).eval()
        norms = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d, SlowBatchNorm)
        layers = {k: m for k, m in self.net.named_modules() if isinstance(m, norms)}
        self.theta: dict[str, nn.Parameter] = {}
        for name, layer in layers.items():
            self.theta |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
        self.source = {name: p.detach().clone() for name, p in self.theta.items()}
        self.lr, self.nesterov = lr, nesterov
        self.velocity: dict[str, Tensor] = {}
        self.updated = False
        self.loss: float | None = None

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        return dict(
            zip(self.theta, torch.autograd.grad(loss, list(self.theta.values())), strict=True)
        )

    def descend(self, loss: Tensor) -> None:
        """v <- 0.9 v + g; theta <- theta - lr v, or with Nesterov theta - lr (g + 0.9 v)."""
        for name, g in self.gradients(loss).items():
            v = 0.9 * self.velocity[name] + g if name in self.velocity else g
            self.velocity[name] = v
            direction = g + 0.9 * v if self.nesterov else v
            self.theta[name].data = self.theta[name].data - self.lr * direction
        self.updated, self.loss = True, loss.item()

    def ensemble(self, keep: float) -> None:
        for name, p in self.theta.items():
            p.data = keep * p.data + (1 - keep) * self.source[name]

    def __call__(self, images: Tensor) -> Tensor:
        self.updated, self.loss = False, None
        return self.step(images).detach()

    def step(self, images: Tensor) -> Tensor:
        raise NotImplementedError


def assert_step_equal(
    adapter: dab.Adapter,
    twin: Twin,
    images: Tensor,
    context: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """One call of both: the logits, the loss, whether it updated, every weight of the net."""
    with context():
        logits = adapter(images.clone())
    expected = twin(images)
    torch.testing.assert_close(logits, expected, rtol=0, atol=ATOL)
    assert adapter.last.updated == twin.updated
    if twin.updated:
        assert adapter.last.loss == pytest.approx(twin.loss, rel=0, abs=ATOL)
    assert set(adapter.trained.names) == set(twin.theta)
    found = dict(adapter.model.named_parameters())
    for name, p in twin.net.named_parameters():
        torch.testing.assert_close(found[name].data, p.data, rtol=0, atol=ATOL, msg=name)


def logit_net(classes: int, seed: int) -> nn.Sequential:
    """The smallest net with a norm, with random weights, in float64."""
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, classes)).double()
    rng = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=rng, dtype=torch.float64)
    return model


def patches(sizes: Iterable[int], seed: int) -> list[Tensor]:
    """Batches of images for `logit_net`."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.rand(n, 3, 2, 2, generator=rng, dtype=torch.float64) for n in sizes]


CONTEXTS = [contextlib.nullcontext, torch.no_grad, torch.inference_mode]


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-9)


def soft_cross_entropy(target: Sequence[Tensor], z: Sequence[Tensor]) -> Tensor:
    """-sum_c t_c log softmax(z)_c, the target given as logits too."""
    terms = [t * log_p for t, log_p in zip(softmax(target), log_softmax(z), strict=True)]
    return -sum(terms, torch.zeros((), dtype=torch.float64))


class SGD:
    """Nesterov's momentum and weight decay: d = g + wd theta; v = mu v + d; theta -= lr (d + mu v).

    The first velocity is d itself.
    """

    def __init__(self, lr: float, momentum: float, weight_decay: float = 0.0) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.velocity: dict[int, Tensor] = {}

    def step(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for index, (theta, gradient) in enumerate(zip(parameters, gradients, strict=True)):
                d = gradient + self.weight_decay * theta
                before = self.velocity.get(index)
                v = d if before is None else self.momentum * before + d
                self.velocity[index] = v
                theta -= self.lr * (d + self.momentum * v)


@torch.no_grad()
def move_toward(teacher: nn.Module, student: nn.Module, keep: float) -> None:
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.copy_(keep * slow + (1 - keep) * fast)


NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)


class Adam:
    """m and v follow g and g^2; theta -= lr m / (1 - .9^t) / (sqrt(v / (1 - .999^t)) + 1e-8)."""

    def __init__(self, lr: float) -> None:
        self.lr, self.t = lr, 0
        self.m: dict[int, Tensor] = {}
        self.v: dict[int, Tensor] = {}

    def step(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, parameters)
        self.t += 1
        with torch.no_grad():
            for index, (theta, g) in enumerate(zip(parameters, gradients, strict=True)):
                self.m[index] = 0.9 * self.m.get(index, torch.zeros_like(g)) + 0.1 * g
                self.v[index] = 0.999 * self.v.get(index, torch.zeros_like(g)) + 0.001 * g * g
                m = self.m[index] / (1 - 0.9**self.t)
                v = self.v[index] / (1 - 0.999**self.t)
                theta -= self.lr * m / (v.sqrt() + 1e-8)


class SlowBatchNorm(nn.Module):
    """The parameters and statistics of a BatchNorm layer, the latter a number for each channel."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean, self.variance = list(layer.running_mean), list(layer.running_var)
        self.follows = False


class SlowStatistics(SlowBatchNorm):
    """Batch normalization with one of the shared kinds of statistics, channel by channel."""

    def __init__(self, layer: nn.modules.batchnorm._BatchNorm, kind: str) -> None:
        super().__init__(layer)
        self.kind, self.follows = kind, True

    def forward(self, x: Tensor) -> Tensor:
        channels = []
        for c in range(x.shape[1]):
            values = x[:, c]
            mean = sum(v.sum() for v in values) / values.numel()
            variance = sum(((v - mean) ** 2).sum() for v in values) / values.numel()
            if self.kind == "ema":
                n = len(x)
                mean = (16 * self.mean[c] + n * mean) / (16 + n)
                variance = (16 * self.variance[c] + n * variance) / (16 + n)
                if self.follows:
                    self.mean[c], self.variance[c] = mean.detach(), variance.detach()
            normal = (values - mean) / (variance + self.eps).sqrt()
            channels.append(self.weight[c] * normal + self.bias[c])
        return torch.stack(channels, dim=1)


def with_slow_statistics(model: nn.Module, kind: str) -> nn.Module:
    """A copy of a flat net whose BatchNorm layers normalize with these statistics."""
    slow = deepcopy(model).eval()
    for name, layer in list(slow.named_children()):
        if isinstance(layer, nn.BatchNorm2d):
            setattr(slow, name, SlowStatistics(layer, kind))
    return slow


class SlowMixture(nn.Module):
    """(1 - alpha) source + alpha batch, a channel at a time."""

    def __init__(self, layer: nn.BatchNorm2d, alpha: float) -> None:
        super().__init__()
        self.layer, self.alpha = layer, alpha

    def forward(self, x: Tensor) -> Tensor:
        layer, alpha = self.layer, self.alpha
        normalized = torch.empty_like(x)
        for c in range(x.shape[1]):
            values = x[:, c]
            mean = values.sum() / values.numel()
            variance = ((values - mean) ** 2).sum() / values.numel()
            mean = (1 - alpha) * layer.running_mean[c] + alpha * mean
            variance = (1 - alpha) * layer.running_var[c] + alpha * variance
            scaled = (values - mean) / (variance + layer.eps) ** 0.5
            normalized[:, c] = layer.weight[c] * scaled + layer.bias[c]
        return normalized


def mixture(model: nn.Module, alpha: float) -> nn.Module:
    """The same net, whose BatchNorm layers normalize with (1 - alpha) source + alpha batch."""
    for name, layer in list(model.named_children()):
        if isinstance(layer, nn.BatchNorm2d):
            setattr(model, name, SlowMixture(layer, alpha))
    return model


def slow_norms(model: nn.Module) -> dict[str, SlowBatchNorm]:
    return {name: m for name, m in model.named_modules() if isinstance(m, SlowBatchNorm)}


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Scale and shift of all normalization layers."""
    norms = (*NORMS, SlowBatchNorm)
    return [p for m in model.modules() if isinstance(m, norms) for p in (m.weight, m.bias)]


def balanced(model: nn.Module) -> nn.Module:
    """The net in double precision, its head shifted so that it predicts many of its classes."""
    model = model.double().eval()
    head = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    with torch.no_grad():
        head.bias -= model(torch.cat(stream(seed=99, dtype=torch.float64))).mean(dim=0)
    return model


def argmax(z: Sequence[Tensor]) -> int:
    values = [value.item() for value in z]
    return values.index(max(values))


def assert_same_statistics(statistics, model: nn.Module) -> None:
    for name, norm in slow_norms(model).items():
        mean, variance = statistics[name]
        assert close(mean, torch.stack(norm.mean)), name
        assert close(variance, torch.stack(norm.variance)), name
