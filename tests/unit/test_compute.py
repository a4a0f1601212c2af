"""Devices and precisions: what of them can be seen on a machine without an accelerator."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import dab
from dab.benchmark.compute import Compute
from dab.benchmark.results.identity import ComputeCard
from tests.support.adapters import METHODS, QUICK
from tests.support.benchmark_task import OPTIONS, run, tiny_cell, tiny_task
from tests.support.nets import CLASSES, net, stream


def computed(cell, **changes):
    return replace(cell, compute=Compute(**changes))


def test_full_precision_on_the_processor_is_the_model_itself():
    model = net("layernorm")
    assert Compute().prepare(model) is model


@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_half_precision_is_near_and_keeps_weights_and_logits_in_full(kind):
    (images,) = stream((8,))
    full = net(kind).eval()(images)
    model = Compute(precision="bf16").prepare(net(kind).eval())
    half = model(images)
    assert half.dtype == torch.float32
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not torch.equal(half, full)  # it did run in another precision
    torch.testing.assert_close(half, full, rtol=0.05, atol=0.05 * full.abs().max().item())


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_in_half_precision(method):
    options = {**QUICK.get(method, {}), **OPTIONS.get(method, {})}
    adapter = dab.create(method, Compute(precision="bf16").prepare(net("layernorm")), **options)
    for images in stream((16,) * 6):
        assert adapter(images).shape == (16, CLASSES)
    assert adapter.totals.skipped == 0
    learns = method not in ("source", "lame", "norm", "t3a")
    assert (adapter.totals.updates > 0) == learns


def test_half_precision_without_the_range_of_full_is_refused():
    with pytest.raises(ValueError, match=r"'fp16' is not supported: .* use 'bf16'"):
        Compute(precision="fp16")


def test_a_run_in_half_precision_is_another_run(tmp_path):
    cell = tiny_cell("dab", "correlated")
    full = run(cell, tiny_task(), tmp_path)
    half = run(computed(cell, precision="bf16"), tiny_task(), tmp_path)
    assert full.card.compute == ComputeCard("cpu", "fp32", False, 1)
    assert half.card.compute == ComputeCard("cpu", "bf16", False, 1)
    assert half.predictions != full.predictions
    assert full.card.run_id != half.card.run_id


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_compiled_model_keeps_its_names():
    model = Compute(compile=True).prepare(net("layernorm"))
    assert list(model.state_dict()) == list(net("layernorm").state_dict())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, compiling
@pytest.mark.parametrize("method", ["tent", "adacontrast"])  # the latter looks inside the model
def test_a_compiled_run_learns_as_a_plain_one(method, tmp_path):
    cell = tiny_cell(method)
    plain = run(cell, tiny_task(), tmp_path)
    compiled = run(computed(cell, compile=True), tiny_task(), tmp_path)
    assert compiled.card.compute.compile
    assert compiled.updates == plain.updates > 0
    assert compiled.error == pytest.approx(plain.error, abs=2)


@pytest.mark.parametrize("device", ["cuda", "mps", "cuda:7", "gpu", "meta"])
def test_a_device_that_is_not_there_is_named(device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has one")
    if device == "mps" and torch.backends.mps.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(ValueError, match=f"no device '{device}' on this machine"):
        Compute(device=device).check()
