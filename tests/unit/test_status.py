"""An adapter says what it is doing, and why; and it never answers NaN for what it did before."""

from __future__ import annotations

import pytest
import torch

import dab
from dab.parts.options import options_of
from dab.testing import net, run, stream
from tests.support.adapters import METHODS, quick

UNTRAINED = {"source", "lame", "norm"}
TRAINED = [
    method
    for method in METHODS
    if "lr" in {option.name for option in options_of(dab.method(*method.values))}
]


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
            update = "update" if updates == 1 else "updates"
            assert adapter.status == (
                f"adapting: {updates} {update} in {calls} calls, last in this call"
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
@pytest.mark.parametrize("method", TRAINED)
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


def test_counts_are_worded_as_people_do():
    adapter = dab.create("tent", net("layernorm"))
    adapter(stream()[0])
    assert adapter.status == "adapting: 1 update in 1 call, last in this call"
    adapter._calls_since_update = 1
    assert adapter.status.endswith("last 1 call ago")


@pytest.mark.filterwarnings("ignore")
def test_dab_says_that_single_images_are_never_admitted():
    adapter = dab.DAB(net("layernorm"), 8)
    for image in stream()[0]:
        adapter(image[None])
        assert 'never admitted: pass batches, or use admission="running"' in adapter.status
        assert adapter.last.reason == adapter.status
    adapter(stream()[0])
    assert "never" not in adapter.status


def test_a_state_without_its_buffer_waits_for_the_next_update():
    adapter = dab.DAB(net("layernorm"), 8, batch_size=8)
    run(adapter, stream())
    assert adapter.totals.updates
    adapter.load_state_dict(adapter.state_dict(buffer=False))
    assert adapter.status.startswith("filling: 0 of 8 images, next update in about ")


def test_a_return_to_the_source_weights_is_counted():
    adapter = dab.create("tent", net("layernorm"))
    adapter(stream()[0])
    with torch.no_grad():
        adapter.trained.parameters[0].fill_(float("inf"))
    assert torch.isfinite(adapter(stream()[1])).all()
    assert (adapter.totals.restored, adapter.totals.skipped) == (1, 1)
    assert adapter.status.endswith("back to the source weights 1 time")
