"""AdaContrast against two nets, a queue and a bank that are lists, and scalar losses; and Ring."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dab.methods import AdaContrast
from dab.parts.ring_buffer import RingBuffer
from dab.testing import same
from tests.support.nets import net, stream
from tests.support.slow.adacontrast import SlowAdaContrast, compare
from tests.support.twins import balanced

KINDS = ["layernorm", "groupnorm", "batchnorm"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    temperature=st.sampled_from([0.07, 0.5]),
    queue=st.integers(1, 20),
    teacher=st.sampled_from([0.0, 0.6, 0.999]),
    neighbors=st.integers(1, 12),
    refine_after=st.integers(0, 20),
    crop=st.booleans(),
    lr=st.sampled_from([1e-5, 2e-4]),
    momentum=st.sampled_from([0.5, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.1]),
)
@example(
    seed=1,
    temperature=0.2,
    queue=13,
    teacher=0.7,
    neighbors=3,
    refine_after=7,
    crop=True,
    lr=2e-4,
    momentum=0.9,
    weight_decay=0.05,
)
def test_every_call_equals_the_twin(kind, seed, **options):
    batches = stream((6, 1, 8, 1, 5), seed=seed, dtype=torch.float64)
    model = balanced(net(kind))
    adapter = AdaContrast(copy.deepcopy(model), statistics="source", seed=seed, **options)
    compare(adapter, SlowAdaContrast(model, seed=seed, **options), batches)


@pytest.mark.parametrize("kind", KINDS)
def test_every_branch_is_taken(kind):
    """Labels that neighbors correct, negatives kept and masked, a queue that runs over."""
    options = {"queue": 16, "neighbors": 5, "refine_after": 9}
    model = balanced(net(kind))
    twin = SlowAdaContrast(model, **options)
    adapter = AdaContrast(model, statistics="source", **options)
    compare(adapter, twin, stream((8, 1, 20, 6), dtype=torch.float64))
    assert twin.corrected > 0
    assert twin.masked > 0
    assert twin.negatives > 0
    assert twin.seen > 2 * twin.capacity


def test_a_query_without_negatives_finds_its_key():
    """Two classes and a queue of one, so that the only negative is masked for some."""
    model = balanced(net("layernorm", classes=2))
    twin = SlowAdaContrast(model, queue=1)
    compare(AdaContrast(model, queue=1), twin, stream((4, 1, 1, 1, 3), dtype=torch.float64))
    assert twin.masked > 0
    assert twin.negatives > 0


def test_a_call_takes_five_forward_passes():
    """Weak view, key, query, the weak view again by the momentum copy, and the answer."""
    model = net("layernorm")
    adapter, passes = AdaContrast(model, queue=32), []
    model.register_forward_hook(lambda *_: passes.append(1))
    first, *later = stream((4, 4, 4))
    adapter(first)  # which has to ask for the number of classes before
    assert len(passes) == 6
    for images in later:
        passes.clear()
        adapter(images)
        assert len(passes) == 5


def test_the_defaults_are_those_of_the_paper():
    for name, parameter in inspect.signature(SlowAdaContrast).parameters.items():
        assert inspect.signature(AdaContrast).parameters[name].default == parameter.default


@pytest.mark.parametrize("options", [{"neighbors": 0}, {"queue": 0}, {"features": "nowhere"}])
def test_refuses_wrong_options_before_it_touches_the_model(options):
    model = net("layernorm")
    with pytest.raises(ValueError, match=r"neighbors|queue|nowhere"):
        AdaContrast(model, **options)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())


@settings(max_examples=150, deadline=None)
@given(
    capacity=st.integers(1, 9),
    sizes=st.lists(st.integers(0, 14), min_size=1, max_size=10),
    cut=st.integers(0, 10),
)
def test_a_ring_holds_the_last_rows(capacity, sizes, cut):
    ring, rows = RingBuffer(capacity), []
    for turn, count in enumerate(sizes):
        if turn == cut and len(ring):
            resumed = RingBuffer(capacity)
            resumed.load_state_dict(ring.state_dict())
            ring = resumed
        new = range(len(rows), len(rows) + count)
        numbers = torch.tensor(list(new), dtype=torch.int64)
        ring.push(numbers, numbers[:, None, None] + torch.zeros(1, 2, 3))
        rows.extend(new)
        slots = [None] * capacity  # row number i is in slot i mod capacity
        for row in rows:
            slots[row % capacity] = row
        held = [row for row in slots if row is not None]
        assert sorted(held) == rows[-capacity:]
        first, second = ring.columns
        assert len(ring) == len(held)
        assert first.tolist() == held
        assert first.dtype == torch.int64
        assert second.shape == (len(held), 2, 3)
        assert second[:, 0, 0].tolist() == second[:, 1, 2].tolist() == held


def test_a_ring_keeps_its_rows_and_its_state_to_itself():
    ring, rows = RingBuffer(3), torch.tensor([1.0, 2.0])
    ring.push(rows)
    rows += 10
    state = ring.state_dict()
    state["columns"][0] += 10
    assert ring.columns[0].tolist() == [1.0, 2.0]
    other = RingBuffer(3)
    other.load_state_dict(ring.state_dict())
    other.push(torch.tensor([3.0]))
    assert other.columns[0].tolist() == [1.0, 2.0, 3.0]
    assert ring.columns[0].tolist() == [1.0, 2.0]


def test_an_empty_ring_saves_and_resumes():
    ring = RingBuffer(2)
    ring.load_state_dict(RingBuffer(2).state_dict())
    assert len(ring) == 0
    assert ring.columns == []
    ring.push(torch.tensor([5]))
    assert ring.columns[0].tolist() == [5]


@pytest.mark.parametrize(("capacity", "other"), [(2, 4), (4, 2)])
def test_a_ring_refuses_the_state_of_another_capacity_and_keeps_its_own(capacity, other):
    full, ring = RingBuffer(other), RingBuffer(capacity)
    full.push(torch.arange(9))
    ring.push(torch.arange(1))
    before = ring.state_dict()
    with pytest.raises(ValueError, match=f"a capacity of {capacity}"):
        ring.load_state_dict(full.state_dict())
    assert same(ring.state_dict(), before)


def test_a_ring_has_room_for_one_row_at_least():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        RingBuffer(0)
