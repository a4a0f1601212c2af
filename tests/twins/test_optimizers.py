"""Every method takes every optimizer, which are compared with loops over single numbers."""

from __future__ import annotations

import inspect
from copy import deepcopy

import pytest
import torch
from torch import nn

import dab
from dab.testing import run, same
from tests.support.adapters import QUICK, quick
from tests.support.nets import net, stream
from tests.support.twins import entropy, trained

KINDS = ["sgd", "adam", "adamw"]
METHODS = [name for name in dab.methods() if "lr" in inspect.signature(dab.method(name)).parameters]


class Slow:
    """One number and what an optimizer remembers of it."""

    def __init__(self, kind: str, lr: float, momentum: float, weight_decay: float) -> None:
        self.kind, self.lr, self.momentum, self.decay = kind, lr, momentum, weight_decay
        self.first: float | None = None
        self.second, self.steps = 0.0, 0

    def step(self, theta: float, gradient: float) -> float:
        self.steps += 1
        if self.kind == "adamw":
            theta -= self.lr * self.decay * theta
        else:
            gradient += self.decay * theta
        if self.kind == "sgd":
            self.first = gradient if self.first is None else self.momentum * self.first + gradient
            return theta - self.lr * (gradient + self.momentum * self.first)
        self.first = self.momentum * (self.first or 0.0) + (1 - self.momentum) * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean = self.first / (1 - self.momentum**self.steps)
        square = self.second / (1 - 0.999**self.steps)
        return theta - self.lr * mean / (square**0.5 + 1e-8)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_equals_the_twin(kind, momentum, weight_decay):
    numbers = {"lr": 0.01, "momentum": momentum, "weight_decay": weight_decay}
    model = net("layernorm").double().eval()
    twin = deepcopy(model)
    adapter = dab.create("tent", model, optimizer=kind, **numbers)
    slow: dict[tuple[int, int], Slow] = {}
    for images in stream(dtype=torch.float64):
        adapter(images)
        loss = sum(entropy(row) for row in twin(images)) / len(images)
        parameters: list[nn.Parameter] = trained(twin)
        for index, gradient in enumerate(torch.autograd.grad(loss, parameters)):
            theta = parameters[index].data
            for i in range(len(theta)):
                optimizer = slow.setdefault((index, i), Slow(kind, **numbers))
                theta[i] = optimizer.step(theta[i].item(), gradient[i].item())
        for a, b in zip(trained(model), trained(twin), strict=True):
            torch.testing.assert_close(a.data, b.data, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_resumes_with_every_optimizer(method, kind):
    case = quick(method, "layernorm")
    options = {"optimizer": kind, "weight_decay": 0.01}
    whole, first, second = (case.adapter(**options) for _ in range(3))
    batches = stream()
    answers = [whole(images) for images in batches]
    run(first, batches[:5])
    second.load_state_dict(first.state_dict())
    for images, answer in zip(batches[5:], answers[5:], strict=True):
        assert torch.equal(second(images), answer)
    assert whole.totals.updates > 0
    assert same(second.state_dict(), whole.state_dict())
    assert type(whole.trained.optimizer).__name__.lower() == kind
    assert whole.trained.optimizer.defaults["weight_decay"] == 0.01


def test_defaults_are_published_ones():
    kinds = {
        name: type(dab.create(name, net("layernorm"), **QUICK.get(name, {})).trained.optimizer)
        for name in METHODS
    }
    assert {name for name, kind in kinds.items() if kind is torch.optim.Adam} == {"note", "rotta"}
    assert set(kinds.values()) == {torch.optim.Adam, torch.optim.SGD}
    sar = dab.create("sar", net("layernorm"))
    assert not sar.trained.optimizer.defaults["nesterov"]
