"""The guard's estimates against loop twins."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dab.guard.calibration import TEMPERATURES, Calibration
from dab.guard.risk import LowerBound, Threshold, boundary, largest_rate
from dab.guard.signals import HELD, Comparison, effective_classes
from tests.support.slow.comparison import SlowComparison, count_classes


def random_probabilities(rng: np.random.Generator, n: int, C: int) -> Tensor:
    return torch.tensor(rng.dirichlet(np.full(C, 0.3), n), dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 300)), min_size=1, max_size=6),
    st.integers(1, 4000),
    st.sampled_from([1.0, 1.7]),
)
def test_a_comparison_equals_the_twin(seed, C, calls, span, temperature):
    rng = np.random.default_rng(seed)
    comparison, slow = Comparison(HELD, temperature), SlowComparison(temperature)
    for samples, more in [*calls, (3, 2)]:
        source = random_probabilities(rng, samples + more, C)
        adapted = (source + random_probabilities(rng, samples + more, C)) / 2
        chosen = np.sort(rng.permutation(samples + more)[:samples])
        comparison.add(adapted, source[chosen], torch.tensor(chosen))
        slow.add(adapted, source[chosen], chosen.tolist())
    assert vars(comparison.opinion(span)) == pytest.approx(slow.opinion(span), abs=1e-5)


def test_a_cleared_comparison_keeps_the_context():
    comparison, slow = Comparison(), SlowComparison()
    for one in (comparison, slow):
        rng = np.random.default_rng(0)
        one.add(random_probabilities(rng, 50, 4), random_probabilities(rng, 50, 4))
        one.clear()
    assert comparison.opinion(1000) is None
    adapted, source = random_probabilities(rng, 5, 4), random_probabilities(rng, 5, 4)
    for one in (comparison, slow):
        one.add(adapted, source)
    assert vars(comparison.opinion(1000)) == pytest.approx(slow.opinion(1000), abs=1e-5)


def test_a_comparison_forgets_what_it_cannot_hold():
    rng = np.random.default_rng(0)
    comparison, slow = Comparison(), SlowComparison()
    for _ in range(5):
        source, adapted = random_probabilities(rng, 200, 4), random_probabilities(rng, 200, 4)
        for one in (comparison, slow):
            one.add(adapted, source)
    assert vars(comparison.opinion(10**6)) == pytest.approx(slow.opinion(10**6), abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6), st.integers(1, 40), st.floats(0.2, 5))
def test_a_temperature_equals_the_twin(seed, C, n, scale):
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n, C))
    labels = [int(rng.integers(C)) if i % 3 else int(logits[i].argmax()) for i in range(n)]

    def surprise(temperature: float) -> float:
        total = (math.log(temperature) / 0.1) ** 2 / 2
        for row, label in zip(logits.tolist(), labels, strict=True):
            powers = [math.exp(x / temperature) for x in row]
            total -= math.log(powers[label] / sum(powers))
        return total

    images = torch.tensor(logits)[:, :, None, None]
    found = Calibration.of(torch.nn.Flatten(), images, torch.tensor(labels)).temperature
    best = min(surprise(temperature) for temperature in TEMPERATURES)
    assert surprise(found) == pytest.approx(best, abs=1e-4)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9).filter(any))
def test_effective_classes_equal_the_twin(counts):
    labels = [c for c, count in enumerate(counts) for _ in range(count)]
    expected = count_classes(labels)
    assert effective_classes(torch.tensor(counts).double()) == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 30), min_size=1, max_size=8))
def test_a_lower_bound_equals_the_twin(seed, sizes):
    rng = np.random.default_rng(seed)
    bound = LowerBound(0.05)
    seen: list[float] = []
    variance = 0.0
    for size in sizes:
        values = rng.integers(0, 2, size).astype(float).tolist()
        guess = sum(seen) / len(seen) if seen else 0.5
        for value in values:
            variance += (value - guess) ** 2
        seen += values
        bound.follow(torch.tensor(values))
        assert bound.value == pytest.approx((sum(seen) - boundary(variance, 0.05)) / len(seen))


@given(st.integers(0, 2**31), st.integers(1, 60), st.booleans())
def test_a_threshold_equals_the_twin(seed, n, ties):
    rng = np.random.default_rng(seed)
    u = rng.integers(0, 9, n) / 10 if ties else rng.random(n)
    wrong = rng.random(n) < u
    found = Threshold.chosen(torch.tensor(u), torch.tensor(wrong), 0.01)
    above = [i for i in range(n) if u[i] > found.uncertainty]
    false = sum(not wrong[i] for i in above) / n
    assert found.false_positives == pytest.approx(false + math.sqrt(math.log(100) / (2 * n)))
    if not ties:  # the best of all thresholds at values that occur, and of none

        def gain(level: float) -> int:
            return sum(1 if wrong[i] else -1 for i in range(n) if u[i] > level)

        best = max(gain(level) for level in [0.0, *u.tolist()][: n + 1] if level != max(u))
        assert gain(found.uncertainty) == best


@given(st.floats(0, 1), st.integers(10, 1000), st.floats(0.001, 0.5))
def test_the_largest_rate_is_where_the_divergence_reaches_its_limit(share, n, alpha):
    rate = largest_rate(share, n, alpha)
    assert share <= rate <= 1
    if share < 1 and rate < 1 - 1e-9:
        terms = [(share, rate), (1 - share, 1 - rate)]
        divergence = sum(a * math.log(a / b) for a, b in terms if a)
        assert n * divergence == pytest.approx(math.log(1 / alpha), rel=1e-3, abs=1e-6)
