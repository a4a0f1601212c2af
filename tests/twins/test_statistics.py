"""The statistics of BatchNorm layers, for every method: loops, or torch's own train mode."""

from __future__ import annotations

import copy
import logging
import math

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.methods import AdaContrast, CoTTA
from dab.parts.batch_norm import batch_moments
from dab.testing import same
from tests.support.adapters import quick
from tests.support.nets import net, stream
from tests.support.slow import adacontrast as slow_adacontrast
from tests.support.slow import cotta as slow_cotta
from tests.support.slow.eata import SlowEATA
from tests.support.slow.roid import CorrectedROID, scaled
from tests.support.slow.sar import SlowSAR
from tests.support.slow.tent import SlowTENT
from tests.support.twins import (
    Twin,
    assert_same_statistics,
    assert_step_equal,
    balanced,
    column_means,
    cosine,
    entropy,
    slow_norms,
    softmax,
    with_slow_statistics,
)

SIZES = (8, 5, 1, 8, 3, 1, 8)
KINDS = ["source", "batch", "ema"]


def double(kind: str = "batchnorm") -> nn.Module:
    return net(kind).double().eval()


def batches(seed: int = 0) -> list[Tensor]:
    return stream(SIZES, seed, dtype=torch.float64)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (1, 3, 2, 2), (5, 4, 1, 1)])
def test_moments_of_a_batch_and_their_gradients(shape, layout):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(memory_format=layout)
    found = batch_moments(x)
    assert found is not None
    for c, (mean, variance) in enumerate(zip(*found, strict=True)):
        values = x[:, c].flatten().tolist()
        slow = sum(values) / len(values)
        assert mean.item() == pytest.approx(slow, rel=0, abs=1e-12)
        spread = sum((value - slow) ** 2 for value in values) / len(values)
        assert variance.item() == pytest.approx(spread, rel=0, abs=1e-12)
    assert torch.autograd.gradcheck(batch_moments, x.requires_grad_())


def test_eata_estimates_its_fisher_term_with_the_statistics_of_the_batch_too():
    model, source = double(), stream((4, 4, 3), seed=99, dtype=torch.float64)
    options = {"lr": 0.02, "margin": 0.99, "fisher_weight": 5.0}
    twin = SlowEATA(with_slow_statistics(model, "batch"), source_batches=source, **options)
    adapter = dab.create("eata", model, source_images=source, **options)
    for images in batches():
        assert_step_equal(adapter, twin, images)
    for name, fisher in adapter.state_dict()["fisher"].items():
        torch.testing.assert_close(fisher, twin.fisher[name], rtol=0, atol=1e-9)
    assert adapter.totals.updates > 2


def test_sar_takes_the_statistics_of_the_batch():
    model = double()
    options = {"lr": 0.05, "rho": 0.5, "reset_below": 0.1}
    twin = SlowSAR(with_slow_statistics(model, "batch"), **options)
    adapter = dab.create("sar", model, **options)
    for images in batches():
        assert_step_equal(adapter, twin, images)
    assert adapter.totals.updates > 2


def test_roid_takes_the_statistics_of_the_batch():
    model = double()
    twin = CorrectedROID(with_slow_statistics(model, "batch"), lr=1e-3, seed=3)
    adapter = dab.create("roid", model, lr=1e-3, seed=3)
    for images in batches():
        assert_step_equal(adapter, twin, images)
        assert adapter.last.updated


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_student_teacher_and_anchor_of_cotta_take_the_statistics_of_the_batch(gate):
    model = double()
    options = {"gate": gate, "augmentations": 2, "lr": 0.03, "teacher": 0.9, "restore": 0.05}
    twin = slow_cotta.SlowCoTTA(with_slow_statistics(model, "batch"), **options)
    adapter = CoTTA(model, **options)
    for images in batches():
        torch.testing.assert_close(adapter(images), twin(images), rtol=0, atol=1e-9)
        for name, theta in twin.student.named_parameters():
            torch.testing.assert_close(model.get_parameter(name), theta, rtol=0, atol=1e-9)
    assert twin.gated == [gate == 1.0] * len(SIZES)


def test_adacontrast_runs_in_train_mode_and_answers_in_eval_mode():
    """Against BatchNorm layers that really are in train mode."""
    options = {"queue": 16, "neighbors": 5, "refine_after": 9}
    model = balanced(net("batchnorm"))
    twin = slow_adacontrast.SlowAdaContrast(model, **options)
    twin.student.train()
    twin.teacher.train()
    # Only the answer calls the whole net; training passes stop before its head.
    twin.student.register_forward_pre_hook(lambda net, _: net.eval() and None)
    twin.student.register_forward_hook(lambda net, *_: net.train() and None)
    adapter = AdaContrast(model, **options)
    slow_adacontrast.compare(adapter, twin, stream((8, 3, 20, 6), dtype=torch.float64))
    for name, (mean, variance) in adapter.statistics.state_dict().items():
        layer = twin.student.get_submodule(name)
        torch.testing.assert_close(mean, layer.running_mean, rtol=0, atol=1e-9)
        torch.testing.assert_close(variance, layer.running_var, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["batch", "ema"])
def test_any_kind_of_statistics_equals_the_twin(kind):
    model = double()
    twin = SlowTENT(model, lr=0.02, statistics=kind)
    adapter = dab.create("tent", model, lr=0.02, statistics=kind)
    for images in batches():
        torch.testing.assert_close(
            adapter.predict(images), copy.deepcopy(twin).net(images), rtol=0, atol=1e-9
        )
        assert_step_equal(adapter, twin, images)
    if kind == "ema":
        assert_same_statistics(adapter.statistics, twin.net)


class SlowUpdate(Twin):
    """DAB's update on given images, with running averages."""

    def __init__(self, model: nn.Module, lr: float, classes: int) -> None:
        super().__init__(with_slow_statistics(model, "ema"), lr)
        self.b = [1 / classes] * classes

    def step(self, images: Tensor) -> Tensor:
        self.follow(False)
        z = self.net(images)
        self.follow(True)
        n, C = z.shape
        y = [[p.item() for p in softmax(row)] for row in z]
        w_div = scaled([1 - cosine(row, self.b) for row in y])
        loss = 0
        for row, w in zip(z, w_div, strict=True):
            H = entropy(row)
            loss = loss + min(10.0, max(1.0, math.log(C) / H.item())) * math.exp(w) * H / n
        self.descend(loss)
        self.ensemble(0.99)
        self.b = [0.9 * b + 0.1 * mean for b, mean in zip(self.b, column_means(y), strict=True)]
        return z

    def follow(self, follows: bool) -> None:
        for norm in slow_norms(self.net).values():
            norm.follows = follows


def test_dab_answers_and_updates_with_running_averages():
    model = balanced(net("batchnorm"))
    twin = SlowUpdate(model, lr=0.05, classes=6)
    adapter = dab.DAB(model, 8, batch_size=6, lr=0.05, filling="adapt")
    trained_on: list[Tensor] = []
    model[0].register_forward_hook(
        lambda _, inputs, __: trained_on.append(inputs[0]) if torch.is_grad_enabled() else None
    )
    for images in stream((8, 5, 1, 8, 3, 20, 8), dtype=torch.float64):
        expected = twin.net(images).detach()
        torch.testing.assert_close(adapter(images), expected, rtol=0, atol=1e-9)
        if adapter.last.updated:
            twin(trained_on[-1])
            assert adapter.last.loss == pytest.approx(twin.loss, abs=1e-9)
        for name, theta in twin.theta.items():
            torch.testing.assert_close(model.get_parameter(name), theta, rtol=0, atol=1e-9)
    assert len(trained_on) == adapter.totals.updates > 2
    assert_same_statistics(adapter.statistics, twin.net)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", dab.methods())
def test_every_method_takes_any_kind_and_resumes_with_it(method, kind):
    case = quick(method, "batchnorm")
    whole, first = (case.adapter(statistics=kind) for _ in range(2))
    for index, images in enumerate(stream((8, 1, 70, 5))):
        if index == 2:
            resumed = case.adapter(statistics=kind)
            resumed.load_state_dict(first.state_dict())
            first = resumed
        assert torch.equal(first.predict(images), whole.predict(images))
        assert torch.equal(first(images), whole(images))
    assert same(first.state_dict(), whole.state_dict())
    whole.reset()
    assert same(whole.state_dict(), case.adapter(statistics=kind).state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_nets_without_batch_norm_are_left_alone(kind):
    plain = dab.create("tent", net("groupnorm"), statistics="source")
    other = dab.create("tent", net("groupnorm"), statistics=kind)
    for images in stream():
        assert torch.equal(plain(images), other(images))
    assert other.state_dict()["statistics"] == {}


def test_a_failed_call_takes_back_what_moved_the_averages():
    adapter = dab.create("source", net("batchnorm"), statistics="ema")
    first, second = stream((8, 8))
    adapter(first)
    before = adapter.statistics.state_dict()
    hook = adapter.model[-1].register_forward_hook(lambda *_: torch.zeros(3))
    with pytest.raises(ValueError, match="logits"):
        adapter(second)
    hook.remove()
    assert same(adapter.statistics.state_dict(), before)
    adapter(second)
    assert not same(adapter.statistics.state_dict(), before)


@pytest.mark.parametrize("method", ["tent", "eata", "sar", "cotta", "roid", "adacontrast"])
def test_single_images_are_warned_of_where_the_batch_gives_the_statistics(method, caplog):
    def warned(**options: str) -> int:
        caplog.clear()
        adapter = dab.create(method, net("batchnorm"), **options)
        for image in stream((1, 1)):
            adapter(image)
        found = [r for r in caplog.records if r.levelno == logging.WARNING]
        return sum("single image" in record.getMessage() for record in found)

    assert warned() == 1
    assert warned(statistics="ema") == 0
