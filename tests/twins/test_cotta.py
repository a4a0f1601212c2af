"""CoTTA against a student, a teacher and an anchor that are three nets, and scalar losses."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from dab.methods import CoTTA
from dab.parts.parameters import bernoulli
from tests.support.nets import net, stream
from tests.support.slow.cotta import SlowCoTTA, compare


@pytest.mark.parametrize("kind", ["layernorm", "groupnorm"])
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    augmentations=st.integers(1, 4),
    teacher=st.sampled_from([0.0, 0.6, 0.999]),
    restore=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    symmetric=st.booleans(),
    lr=st.sampled_from([0.01, 0.03]),
    momentum=st.sampled_from([0.5, 0.9]),
)
@example(seed=5, augmentations=3, teacher=0.9, restore=0.05, symmetric=True, lr=0.03, momentum=0.9)
@example(seed=5, augmentations=3, teacher=0.9, restore=0.05, symmetric=False, lr=0.03, momentum=0.9)
def test_every_call_equals_the_twin(kind, seed, **options):
    batches = stream((6, 1, 8, 3, 1, 4), seed=seed, dtype=torch.float64)
    model = net(kind).double().eval()
    with torch.no_grad():
        sure = [model(images).softmax(dim=1).amax(dim=1).mean().item() for images in batches]
    gate = sum(sorted(sure)[2:4]) / 2  # half of the batches on either side
    adapter = CoTTA(copy.deepcopy(model), gate=gate, seed=seed, **options)
    twin = SlowCoTTA(model, gate=gate, seed=seed, **options)
    compare(adapter, twin, batches)
    assert twin.gated.count(True) == twin.gated.count(False) == 3
    assert (twin.restored > 0) == (options["restore"] > 0)
    if options["restore"] == 1:
        for name, source in model.named_parameters():
            assert torch.equal(adapter.model.get_parameter(name), source)


def test_the_defaults_are_those_of_the_paper():
    """With 40 classes and a hesitant net, whose confidence is about 0.1."""
    model = net("layernorm", classes=40).double()
    with torch.no_grad():
        model.head.weight *= 0.07
    adapter, twin = CoTTA(copy.deepcopy(model)), SlowCoTTA(model)
    compare(adapter, twin, stream((5, 1, 3, 1), dtype=torch.float64))
    assert True in twin.gated
    assert False in twin.gated
    assert twin.restored > 0


def test_refuses_an_average_over_no_views():
    with pytest.raises(ValueError, match=r"augmentations must be an integer .*, got 0"):
        CoTTA(net("layernorm"), augmentations=0)


def trials(count: int, p: float, runs: int) -> Tensor:
    """A row of zeros and ones for each run."""
    generator = torch.Generator().manual_seed(3)
    outcomes = torch.zeros(runs, count, dtype=torch.int64)
    for row in outcomes:
        for position in bernoulli(count, p, generator).tolist():
            row[position] += 1
    return outcomes


def assert_binomial(successes: float, runs: int, p: float) -> None:
    assert abs(successes - runs * p) < 4 * math.sqrt(runs * p * (1 - p))


@pytest.mark.parametrize(("count", "p"), [(1, 0.3), (2, 0.7), (7, 0.05), (7, 0.5), (40, 0.95)])
def test_every_trial_succeeds_with_its_probability_whatever_the_others_do(count, p):
    runs = 3000
    outcomes = trials(count, p, runs)
    assert outcomes.max() == 1
    for position in range(count):
        assert_binomial(outcomes[:, position].sum().item(), runs, p)
    for first in range(min(count, 4)):
        for second in range(first + 1, min(count, 4)):
            both = (outcomes[:, first] * outcomes[:, second]).sum().item()
            assert_binomial(both, runs, p * p)


def test_gaps_between_successes_are_geometric():
    p, count = 0.02, 500_000
    positions = bernoulli(count, p, torch.Generator().manual_seed(0)).tolist()
    assert_binomial(len(positions), count, p)
    gaps = [after - before for before, after in pairwise([-1, *positions])]
    for length in (1, 2, 3, 50, 200):
        longer = sum(gap > length for gap in gaps)
        assert_binomial(longer, len(gaps), (1 - p) ** length)
    short_first = [after for before, after in pairwise(gaps) if before <= 34]  # about half of them
    assert_binomial(sum(gap <= 34 for gap in short_first), len(short_first), 1 - (1 - p) ** 34)


@settings(deadline=None)
@given(st.integers(0, 300), st.floats(0, 1), st.integers(0, 2**31))
@example(10, 1e-18, 0)  # gaps whose sum is beyond 64-bit integers
@example(10, 5e-324, 0)  # gaps that are so themselves
@example(300, 1 - 2**-53, 0)
def test_positions_are_distinct_ascending_and_in_range(count, p, seed):
    positions = bernoulli(count, p, torch.Generator().manual_seed(seed)).tolist()
    assert positions == sorted(set(positions))
    assert all(0 <= position < count for position in positions)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_impossible_and_certain_trials(count):
    generator = torch.Generator()
    assert bernoulli(count, 0.0, generator).tolist() == []
    assert bernoulli(count, 1.0, generator).tolist() == list(range(count))
    assert bernoulli(count, 0.5, generator).dtype == torch.int64
