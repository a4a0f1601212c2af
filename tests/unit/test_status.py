"""An adapter says what it is doing, and why; and it never answers NaN for what it did before."""

from __future__ import annotations

import pytest
import torch

import dab
from dab.testing import net, run, stream
from tests.support.adapters import quick

UNTRAINED = {"source", "lame", "norm"}


def test_dab_says_what_it_waits_for():
    adapter = dab.DAB(net("layernorm"), 24, batch_size=16)
    assert adapter.status == "ready: no images yet"
    adapter(stream()[0])
    fill = adapter.last.fill
    assert adapter.status.startswith(f"filling: {fill} of 24 images, first update in about ")
    assert adapter.last.reason == adapter.status
    seen = set()
    for images in stream() * 8:
        adapter(images)
        seen.add(adapter.status.partition(":")[0])
        if adapter.last.updated:
            calls, updates = adapter.totals.calls, adapter.totals.updates
            assert adapter.status == (
                f"adapting: {updates} updates in {calls} calls, last in this call"
            )
            assert adapter.last.reason.startswith("updated: loss ")
        elif len(adapter.buffer) == 24:
            count = adapter.memory.trigger.counted
            assert adapter.last.reason == adapter.status
            assert adapter.status == (
                f"waiting: {count} of 3 classes replaced since the last update"
            )
    assert seen == {"filling", "waiting", "adapting"}


def test_the_estimate_of_the_first_update_is_near():
    adapter = dab.DAB(net("layernorm"), 64, batch_size=16)
    adapter(torch.cat(stream()))
    about = int(adapter.status.split("about ")[1].split()[0].replace(",", ""))
    seen = adapter.totals.samples
    batches = iter(stream((8,) * 100, seed=1))
    while not adapter.totals.updates:
        adapter(next(batches))
    assert about / 3 < adapter.totals.samples - seen < about * 3


@pytest.mark.parametrize("method", ["note", "rotta"])
def test_periodic_methods_say_how_far_the_next_update_is(method):
    adapter = dab.create(method, net("layernorm"), capacity=8, update_every=64)
    run(adapter, stream((8, 5)))
    assert adapter.status == "waiting: 13 of 64 images until the next update"


@pytest.mark.parametrize("method", dab.methods())
def test_every_call_has_a_reason(method):
    adapter = quick(method, "batchnorm").adapter()
    for images in stream():
        adapter(images)
        assert adapter.last.reason
        assert adapter.status
        assert adapter.last.reason.startswith("updated") == adapter.last.updated
    if method in UNTRAINED:
        assert adapter.status == adapter.last.reason == "not adapting by design"


@pytest.mark.parametrize("kind", ["layernorm", "batchnorm"])
@pytest.mark.parametrize("lr", [1e38, 1e20, 1e5])
@pytest.mark.parametrize("method", sorted(set(dab.methods()) - UNTRAINED - {"t3a"}))
def test_weights_and_answers_stay_finite_at_any_rate(method, lr, kind):
    adapter = quick(method, kind).adapter(lr=lr, output="causal_prior")
    for images in stream() * 2:
        assert torch.isfinite(adapter.predict(images)).all()
        assert torch.isfinite(adapter(images)).all()
        assert all(torch.isfinite(value).all() for value in adapter.model.state_dict().values())
        for entries in adapter.state_dict()["weights"].values():
            assert all(torch.isfinite(entry).all() for entry in entries.values())
    assert adapter.totals.calls == 2 * len(stream())
    if lr == 1e38:
        assert adapter.totals.skipped
