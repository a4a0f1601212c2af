"""The checks of the contract find what methods do wrong, and name it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.methods import TENT
from dab.testing import CLASSES, NETS, Case, check_method, checks, net
from dab.testing.contract import require


class ChangesItsInput(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        images.mul_(0.9)
        return super().adapt(images, logits)


class DrawsGlobally(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return super().adapt(images, logits) + torch.rand(logits.shape)


class IgnoresItsSeed(TENT):
    """Draws from a generator of its own, which a reset leaves as it is."""

    def begin(self, classes: int) -> None:
        self.noise = getattr(self, "noise", torch.Generator())

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return super().adapt(images, logits) + torch.rand(logits.shape, generator=self.noise)


class RemembersAfterReset(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        self.seen = getattr(self, "seen", 0) + len(images)
        return super().adapt(images, logits) + self.seen


class ForgetsToSave(TENT):
    """What it remembers is reset, but not in its state."""

    def begin(self, classes: int) -> None:
        self.seen = 0

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        self.seen += len(images)
        return super().adapt(images, logits) + self.seen


class Log:
    def __init__(self) -> None:
        self.logits: list[Tensor] = []

    def state_dict(self) -> dict[str, list[Tensor]]:
        return {"logits": list(self.logits)}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        self.logits = list(state["logits"])


class KeepsEverything(TENT):
    @dataclass
    class Memory:
        log: Log

    def begin(self, classes: int) -> Memory:
        return self.Memory(Log())

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        self.memory.log.logits += [logits.detach()]
        return super().adapt(images, logits)


class TrainsOthers(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        next(self.model.parameters()).mul_(0.999)
        return super().adapt(images, logits)


class ReturnsGradients(TENT):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).requires_grad_()


class NeverLearns(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        return logits


class Crashes(TENT):
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        raise KeyError("oops")


BROKEN = {
    ChangesItsInput: "check_inputs_are_unchanged: the method changed its input images in place",
    DrawsGlobally: "check_seed: the global random generator advanced: draw from adapter.generator",
    IgnoresItsSeed: "check_reset: .* differ after a reset: keep what the method remembers in",
    RemembersAfterReset: "check_reset: .* differ after a reset: keep what the method remembers in",
    ForgetsToSave: "check_resuming: the logits differ after resuming at batch 1",
    KeepsEverything: "check_memory_is_bounded: the state grew from",
    TrainsOthers: "check_detach_restores_the_model: .* changed and is not in adapter.trained",
    ReturnsGradients: "check_logits: the logits require a gradient",
    NeverLearns: "check_adapts_and_counts: no update within 65 images: pass options",
    Crashes: r"check_logits: KeyError\('oops'\)",
}


@pytest.mark.parametrize("method", BROKEN)
def test_a_broken_method_is_told_which_promise_it_breaks(method):
    with pytest.raises(AssertionError, match=f"^{method.__name__} on layernorm fails .*") as caught:
        check_method(method, nets=["layernorm"])
    assert caught.match(BROKEN[method])


def test_a_sound_method_passes_on_a_net_of_ones_own():
    classes: list[int] = []

    def own(count: int) -> nn.Module:
        classes.append(count)
        return net("groupnorm", count)

    check_method(TENT, {"lr": 0.01}, nets=[own])
    assert set(classes) == {CLASSES, CLASSES + 1}
    assert len(classes) > len(checks())


def test_options_reach_the_method():
    with pytest.raises(AssertionError, match=r"DAB on layernorm fails check_adapts_and_counts"):
        check_method("dab", nets=["layernorm"])  # its buffer is too large for the stream
    with pytest.raises(TypeError, match="capactiy"):
        check_method("dab", {"capactiy": 8})


def test_names_that_are_unknown_or_missing_are_named():
    class Nameless(dab.Adapter):
        def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
            return logits

    with pytest.raises(ValueError, match=r"Nameless has no name: .* @dab\.register"):
        check_method(Nameless)
    with pytest.raises(ValueError, match="unknown method 'mine'"):
        check_method("mine")


def test_every_check_says_what_it_checks_and_takes_every_net():
    names = [check.__name__ for check in checks()]
    assert len(names) == len(set(names)) == 24
    assert all(name.startswith("check_") for name in names)
    assert all(check.__doc__ for check in checks())
    assert [repr(Case("tent", net=net)) for net in NETS] == [
        "TENT on layernorm",
        "TENT on groupnorm",
        "TENT on batchnorm",
    ]


def test_requirements_do_not_depend_on_assert_statements():
    with pytest.raises(AssertionError, match="because"):
        require(False, "because")
