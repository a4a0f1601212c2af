"""A call happens wholly or not at all, whatever fails in it and whenever it is interrupted."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.adapter import Adapter
from dab.outputs import outputs
from dab.testing import same, stream
from tests.support.adapters import METHODS, REPRESENTATIVES, quick
from tests.support.interrupts import Interrupt, moments

SIZES = (8, 8, 5, 1, 8)

# Every method on both nets, and among them every output.
CASES = [
    (method, net, output)
    for (method, net), output in zip(
        itertools.product(dab.methods(), ["layernorm", "batchnorm"]),
        itertools.cycle([None, *outputs()]),
        strict=False,
    )
]


class Faulty(nn.Module):
    """A classifier that fails in a chosen forward or backward pass."""

    interrupts: ClassVar[list[BaseException]] = []  # dropped in the middle of the next call

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.error: type[BaseException] = RuntimeError
        self.forwards_left = self.backwards_left = -1

    def forward(self, images: Tensor) -> Tensor:
        self.interrupts.clear()
        self.forwards_left -= 1
        logits = self.model(images)
        if self.forwards_left == -1:
            raise self.error("in a forward pass")
        if logits.requires_grad:
            logits.register_hook(self._backward)
        return logits

    def _backward(self, gradient: Tensor) -> None:
        self.backwards_left -= 1
        if self.backwards_left == -1:
            raise self.error("in a backward pass")


def everything(adapter: Adapter) -> Any:
    """All that a call may change."""
    return copy.deepcopy(
        {
            "state": adapter.state_dict(),
            "model": dict(adapter.model.state_dict()),
            "last": vars(adapter.last),
            "since": adapter._calls_since_update,
            "flags": [(p.requires_grad, p.grad) for p in adapter.model.parameters()],
            "training": [module.training for module in adapter.model.modules()],
            "hooks": [
                (len(module._forward_hooks), len(module._forward_pre_hooks))
                for module in adapter.model.modules()
            ],
            "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        }
    )


def make(method: str, net: str, output: str | None) -> Adapter:
    if method == "lame":
        output = None
    case = quick(method, net)
    options = {} if output is None else {"output": output}
    return case.adapter(Faulty(case.model()), **options)


def undisturbed(method: str, net: str, output: str | None) -> list[tuple[Tensor, Any]]:
    adapter = make(method, net, output)
    return [(adapter(images), everything(adapter)) for images in stream(SIZES)]


ERRORS = [RuntimeError, MemoryError, KeyboardInterrupt]


@pytest.mark.parametrize(
    ("method", "net", "output", "error"),
    [
        pytest.param(*case, error, marks=() if case[0] in REPRESENTATIVES else pytest.mark.slow)
        for case, error in zip(CASES, itertools.cycle(ERRORS), strict=False)
    ],
)
def test_a_failure_in_any_forward_or_backward_changes_nothing(method, net, output, error):
    expected = undisturbed(method, net, output)
    adapter = make(method, net, output)
    model = adapter.model
    model.error = error
    failures = 0
    for images, (logits, after) in zip(stream(SIZES), expected, strict=True):
        before = everything(adapter)
        for point in ("forwards_left", "backwards_left"):
            for number in range(100):
                setattr(model, point, number)
                try:
                    answer = adapter(images)
                except error:
                    failures += 1
                    assert same(everything(adapter), before), (point, number)
                    continue
                finally:
                    model.forwards_left = model.backwards_left = -1
                break
            assert number < 99
            if point == "forwards_left":  # the call went through: take it back for the other point
                assert same(answer, logits)
                twin = make(method, net, output)
                twin.load_state_dict(before["state"])
                twin.last, twin._calls_since_update = adapter.last, before["since"]
                adapter, model = twin, twin.model
                model.error = error
                vars(adapter.last).update(before["last"])
                before = everything(adapter)
        assert same(answer, logits)
        assert same(everything(adapter)["state"], after["state"])
        assert same(everything(adapter)["model"], after["model"])
    assert failures >= len(SIZES)


def check_interrupts(
    method: str, net: str, output: str | None, operation: str, most: int | None = None
) -> int:
    """Interrupt an operation at every moment, or at some; returns how often.

    Each KeyboardInterrupt lives until the model runs again, and with it all that it interrupted.
    """
    work = OPERATIONS[operation]
    numbers = random.Random(f"{method} {net} {output} {operation}")
    adapter, other = make(method, net, output), make(method, net, output)
    for images in stream((5, 8, 8)):
        other(images)
    saved = other.state_dict()
    interrupts = 0
    for images in stream((8, 8)):
        before, spare = everything(adapter), copy.deepcopy(adapter)
        found = moments(lambda: work(adapter, images, saved))  # noqa: B023
        after = everything(adapter)
        if most is not None and len(found) > most:
            found = numbers.sample(found, most)
        for moment in found:
            if not same(everything(adapter), before):
                adapter = copy.deepcopy(spare)
            try:
                with Interrupt(moment):
                    work(adapter, images, saved)
            except KeyboardInterrupt as interrupt:
                Faulty.interrupts.append(interrupt)
                interrupts += 1
                seen = copy.deepcopy(dict(adapter.model.state_dict()))
                now = everything(adapter)
                assert same(now, before) or same(now, after), moment
                assert same(seen, now["model"]), moment  # also before another call could mend it
        if not same(everything(adapter), after):
            work(adapter, images, saved)
        assert same(everything(adapter), after)
    return interrupts


OPERATIONS: dict[str, Callable[[Adapter, Tensor, Any], Any]] = {
    "call": lambda adapter, images, saved: adapter(images),
    "predict": lambda adapter, images, saved: adapter.predict(images),
    "reset": lambda adapter, images, saved: adapter.reset(),
    "resume": lambda adapter, images, saved: adapter.load_state_dict(saved),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("method", "net", "output"), CASES)
def test_an_interrupt_leaves_a_call_as_before_or_after(method, net, output):
    """Inserting, encoding, drawing, stepping, correcting, counting and rolling back included."""
    assert check_interrupts(method, net, output, "call", most=20) > 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_interrupt_leaves_other_operations_as_before_or_after(operation):
    assert check_interrupts("rotta", "batchnorm", "markov", operation, most=40) > 40


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("method", "net", "output"), CASES)
def test_an_interrupt_at_any_moment_leaves_a_call_as_before_or_after(method, net, output):
    assert check_interrupts(method, net, output, "call")


def test_a_block_ends_with_gradients_on_and_does_nothing_if_it_is_abandoned():
    """An interrupt may leave the mode of a block inside it, or no end at all."""
    adapter = make("sar", "layernorm", None)
    trained = adapter.trained
    source = copy.deepcopy(trained.source)
    with torch.no_grad():
        block = trained.moved(trained.source, 0.5)
    with torch.enable_grad(), block:
        assert not same([master.detach() for master in trained.masters], source)
    assert same([master.detach() for master in trained.masters], source)
    with torch.no_grad():
        abandoned = trained.moved(trained.source, 0.5)
        abandoned.__enter__()
        trained.restore()
        del abandoned
    assert same([master.detach() for master in trained.masters], source)


@pytest.mark.parametrize("method", METHODS)
def test_a_call_inside_a_call_is_refused_and_changes_nothing(method):
    """As a forward hook or a signal handler would do."""
    expected = undisturbed(method, "batchnorm", "causal_prior")
    adapter = make(method, "batchnorm", "causal_prior")
    images = stream(SIZES)
    refused = 0

    def save(*_: Any) -> None:
        nonlocal refused
        for reenter in (
            adapter.state_dict,
            adapter.reset,
            adapter.detach,
            lambda: adapter(images[0]),
            lambda: adapter.predict(images[0]),
            lambda: copy.deepcopy(adapter),
        ):
            with pytest.raises(RuntimeError, match="after the call"):
                reenter()
            refused += 1

    adapter.model.model.register_forward_hook(save)
    for batch, (logits, after) in zip(images, expected, strict=True):
        assert same(adapter(batch), logits)
        assert same(adapter.state_dict(), after["state"])
    assert refused


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_handler_that_saves_inside_a_call_changes_nothing():
    images = stream((8,))[0]
    twin = make("dab", "batchnorm", None)
    before = twin.state_dict()
    found = moments(lambda: twin(images))
    after = twin.state_dict()
    handled: list[str] = []

    def save() -> None:
        try:
            assert same(adapter.state_dict(), before) or same(adapter.state_dict(), after)
            handled.append("saved")
        except RuntimeError:
            handled.append("refused")

    for moment in found[::10]:
        adapter = make("dab", "batchnorm", None)
        with Interrupt(moment, save):
            adapter(images)
        assert same(adapter.state_dict(), after)
    assert {"refused", "saved"} == set(handled)


def test_a_second_interrupt_during_the_rollback_waits_for_its_end(monkeypatch):
    adapter = make("dab", "batchnorm", "causal_prior")
    output = adapter.output
    batches = stream(SIZES)
    adapter(batches[0])
    before = copy.deepcopy(dict(adapter.model.state_dict())), copy.copy(vars(adapter.last))
    rollback, left = adapter.trained.rollback, [3]

    def interrupted(token: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        rollback(token)

    monkeypatch.setattr(type(adapter.trained), "rollback", lambda _, token: interrupted(token))
    adapter.model.forwards_left = 0
    with pytest.raises(KeyboardInterrupt):
        adapter(batches[1])
    assert left == [0]
    assert same((dict(adapter.model.state_dict()), vars(adapter.last)), before)
    assert adapter._savepoint is None
    assert adapter.output is output
