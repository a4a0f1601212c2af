"""Calls and predictions from several threads behave as if made one after the other."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

import dab
from dab.testing import net, same, stream
from tests.support.adapters import METHODS, quick

THREADS = 8


@pytest.fixture(params=["default", "short"])
def switch_interval(request) -> Iterator[None]:
    interval = sys.getswitchinterval()
    if request.param == "short":
        sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switch_interval")
@pytest.mark.parametrize("method", METHODS)
def test_threads_act_one_after_the_other(method):
    """All threads bring the same images, so that every order of them has the same result."""
    case = quick(method, "batchnorm")
    images = stream((8,))[0]
    twin = case.adapter()
    answers = [twin.predict(images)]
    calls = []
    for _ in range(THREADS * 2):
        calls.append(twin(images))
        answers.append(twin.predict(images))
    adapter = case.adapter()
    called: list[torch.Tensor] = []
    predicted: list[torch.Tensor] = []
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(4):
                if (number + turn) % 2:
                    called.append(adapter(images))
                else:
                    predicted.append(adapter.predict(images))
                    assert adapter.state_dict()["method"] == method
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert adapter.totals == twin.totals
    assert same(adapter.state_dict(), twin.state_dict())
    assert same(dict(adapter.detach().state_dict()), dict(twin.detach().state_dict()))
    for found, expected in ((called, calls), (predicted, answers)):
        assert all(any(torch.equal(a, b) for b in expected) for a in found)
    assert len(called) == len(predicted) == 2 * THREADS


@pytest.mark.parametrize("method", METHODS)
def test_a_model_belongs_to_one_adapter_at_a_time(method):
    case = quick(method, "groupnorm")
    model = case.model()
    flags = [(p.requires_grad) for p in model.parameters()]
    first = case.adapter(model)
    first(stream()[0])
    before = first.state_dict()
    for taken in (model, torch.nn.Sequential(model), model[0], first):
        with pytest.raises(RuntimeError, match=r"detach\(\)"):
            dab.create("source", taken)
    assert same(first.state_dict(), before)
    first.detach()
    second = case.adapter(model)
    second(stream()[0])
    second.detach()
    assert [(p.requires_grad) for p in model.parameters()] == flags


def test_a_copy_of_an_adapter_has_a_model_of_its_own():
    adapter = dab.DAB(net("layernorm"), 8)
    twin = copy.deepcopy(adapter)
    with pytest.raises(RuntimeError, match="another adapter"):
        dab.DAB(twin.model)
    adapter.detach()
    dab.DAB(adapter.model)


def test_a_dropped_adapter_gives_its_model_back():
    model = net("batchnorm")
    flags = [module.training for module in model.modules()]
    dab.create("tent", model)(stream()[0])
    assert [module.training for module in model.modules()] == flags
    assert not any(module._forward_pre_hooks for module in model.modules())
    dab.create("tent", model)


def test_models_may_share_what_has_no_parameters():
    activation = torch.nn.ReLU()
    first, second = (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LayerNorm(192), activation) for _ in "ab"
    )
    adapters = dab.create("tent", first), dab.create("tent", second)
    assert all(adapter(stream()[0]).shape == (8, 192) for adapter in adapters)


def test_models_that_share_parameters_or_statistics_belong_together():
    first, second = net("layernorm"), net("layernorm")
    second.head = torch.nn.Linear(1, 1)
    second.head.weight = next(first.parameters())
    adapter = dab.create("tent", first)
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        dab.create("tent", second)
    adapter.detach()
    dab.create("tent", second)
    norm = torch.nn.BatchNorm2d(3, affine=False)  # has running statistics, and no parameters
    models = [torch.nn.Sequential(norm, torch.nn.Flatten(), torch.nn.Linear(192, 6)) for _ in "ab"]
    adapter = dab.create("norm", models[0])
    with pytest.raises(RuntimeError, match=r"detach\(\)"):
        dab.create("norm", models[1])


@pytest.mark.parametrize("method", METHODS)
def test_a_detached_adapter_leaves_the_model_alone(method, tmp_path):
    case = quick(method, "batchnorm")
    model = case.model()
    first = case.adapter(model)
    first(stream()[0])
    state = first.state_dict()
    first.save(tmp_path / "state.pt")
    first.detach()
    second = dab.create("tent", model)
    second(stream()[1])
    before = copy.deepcopy(dict(model.state_dict()))
    for change in (
        first.reset,
        lambda: first(stream()[0]),
        lambda: first.predict(stream()[0]),
        lambda: first.load_state_dict(state),
        lambda: first.load(tmp_path / "state.pt"),
    ):
        with pytest.raises(RuntimeError, match=r"detach\(\): wrap it again"):
            change()
        assert same(dict(model.state_dict()), before)
    assert first.detach() is model
    assert first.totals.calls == copy.deepcopy(first).totals.calls == 1
    first.save(tmp_path / "again.pt")
