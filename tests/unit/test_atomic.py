"""A call happens wholly or not at all, whatever fails in it and whenever it is interrupted."""

from __future__ import annotations

import copy
import itertools
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.adapter import Adapter
from dab.outputs import outputs
from dab.testing import same, stream
from tests.support.adapters import quick

SOURCES = str(Path(dab.__file__).parent)
SIZES = (8, 8, 5, 1, 8)

OUTPUTS = [None, *outputs()]
NETS = ["layernorm", "batchnorm"]


class Faulty(nn.Module):
    """A classifier that fails in a chosen forward or backward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.error: type[BaseException] = RuntimeError
        self.forwards_left = self.backwards_left = -1

    def forward(self, images: Tensor) -> Tensor:
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
            "grad": torch.is_grad_enabled(),
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


METHODS = [
    (method, net, output)
    for method in dab.methods()
    for net in NETS
    for output in (OUTPUTS if net == "layernorm" and method != "lame" else [None])
]


ERRORS = [RuntimeError, MemoryError, KeyboardInterrupt]


@pytest.mark.parametrize(
    ("method", "net", "output", "error"),
    [(*case, error) for case, error in zip(METHODS, itertools.cycle(ERRORS))],
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


class InterruptedAt:
    """Raises KeyboardInterrupt at the n-th line that this package executes.

    Not where locks are taken: Python looks for signals after calls, so never between the last call
    in a `with` block and the release of its lock, but tracing gets in between.
    """

    LOCKING = ("enter", "lock_of")

    def __init__(self, line: int) -> None:
        self.line = line

    def __enter__(self) -> InterruptedAt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCES):
            return None
        if event == "line" and frame.f_code.co_name not in self.LOCKING:
            self.line -= 1
            if self.line < 0:
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("method", "net", "output"), METHODS)
def test_an_interrupt_at_any_line_leaves_a_call_as_before_or_after(method, net, output):
    """Inserting, encoding, drawing, stepping, correcting, counting and rolling back included."""
    expected = undisturbed(method, net, output)
    adapter = make(method, net, output)
    numbers = random.Random(f"{method} {net} {output}")
    for images, (logits, after) in zip(stream(SIZES), expected, strict=True):
        before = everything(adapter)
        for line in sorted(numbers.sample(range(1500), 12)):
            try:
                with InterruptedAt(line):
                    adapter(images)
            except KeyboardInterrupt:
                now = everything(adapter)
            else:
                now = everything(adapter)
                assert same(now, after)
            if same(now, after):
                break
            assert same(now, before), line
        else:
            assert same(adapter(images), logits)
            assert same(everything(adapter), after)


class Alarm:
    """Raises KeyboardInterrupt in the main thread after some time, by a signal of the system."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.previous)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("method", dab.methods())
def test_signals_at_random_moments_leave_a_call_as_before_or_after(method):
    net, output = "batchnorm", "causal_prior"
    expected = undisturbed(method, net, output)
    adapter = make(method, net, output)
    numbers = random.Random(method)
    interrupts = 0
    batches = stream(SIZES)
    while interrupts < 100:
        adapter.reset()
        for images, (logits, after) in zip(batches, expected, strict=True):
            before = everything(adapter)
            began = time.perf_counter()
            copy.deepcopy(adapter)(images)
            seconds = time.perf_counter() - began
            for _ in range(4):
                try:
                    with Alarm(1e-6 + seconds * numbers.random()):
                        adapter(images)
                    now = after
                except KeyboardInterrupt:
                    interrupts += 1
                    now = everything(adapter)
                if same(now, after):
                    break
                assert same(now, before)
            else:
                assert same(adapter(images), logits)
            assert same(everything(adapter), after)


@pytest.mark.parametrize("method", dab.methods())
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


def test_a_handler_that_saves_inside_a_call_changes_nothing():
    expected = undisturbed("dab", "batchnorm", None)
    adapter = make("dab", "batchnorm", None)
    handled: list[str] = []

    def handler(*_: Any) -> None:
        try:
            adapter.state_dict()
            handled.append("saved")
        except RuntimeError:
            handled.append("refused")

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(20):
            adapter.reset()
            for images, (logits, after) in zip(stream(SIZES), expected, strict=True):
                signal.setitimer(signal.ITIMER_REAL, 2e-4 + 2e-4 * number)
                assert same(adapter(images), logits)
                assert same(adapter.state_dict(), after["state"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert "refused" in handled


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
