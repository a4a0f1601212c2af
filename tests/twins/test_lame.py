"""LAME against a twin written with loops: affinity, fixed point, and when it stops."""

from __future__ import annotations

import math
from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dab
from dab.outputs import Laplacian
from dab.testing import same
from tests.support.nets import CLASSES, SIZE, net, stream
from tests.support.slow.lame import features_of
from tests.support.twins import CONTEXTS, cosine

Rows = list[list[float]]


def softmax(row: list[float]) -> list[float]:
    e = [math.exp(value - max(row)) for value in row]
    return [value / sum(e) for value in e]


def slow_affinity(features: Rows, k: int) -> Rows:
    """Cosine of the raw rows is the inner product of the normalized ones."""
    n = len(features)
    nearest = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        others.sort(key=lambda j: -cosine(features[i], features[j]))
        nearest.append(set(others[:k]))
    return [[((j in nearest[i]) + (i in nearest[j])) / 2 for j in range(n)] for i in range(n)]


def slow_rbf(features: Rows, k: int) -> Rows:
    unit = [[x / math.hypot(*row) for x in row] for row in features]
    d = [[math.dist(a, b) for b in unit] for a in unit]
    s = sum(sorted(row)[min(k, len(row)) - 1] for row in d) / len(d)
    return [[math.exp(-(x**2) / (2 * s**2)) if x else 1.0 for x in row] for row in d]


def slow_linear(features: Rows, k: int) -> Rows:
    return [[cosine(a, b) for b in features] for a in features]


AFFINITIES = {"knn": slow_affinity, "rbf": slow_rbf, "linear": slow_linear}


def slow_lame(
    logits: Rows, features: Rows, k: int, rounds: int = 100, affinity: str = "knn"
) -> tuple[Rows, int]:
    """log q, and the number of rounds it took."""
    n, C = len(logits), len(logits[0])
    W = AFFINITIES[affinity](features, k)
    p = [softmax(row) for row in logits]
    q, energy = p, math.inf
    for done in count(1):
        pull = [[sum(W[i][j] * q[j][c] for j in range(n)) for c in range(C)] for i in range(n)]
        q = [softmax([math.log(p[i][c]) + pull[i][c] for c in range(C)]) for i in range(n)]
        # Likelihood and entropy, less the Laplacian term, linear at the round's beginning.
        previous, energy = energy, 0.0
        for i in range(n):
            for c in range(C):
                energy += q[i][c] * (math.log(q[i][c]) - math.log(p[i][c]) - pull[i][c])
        if abs(previous - energy) < 1e-8 or done == rounds:
            break
    return [[math.log(value) for value in row] for row in q], done


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_answer_equals_the_twin(kind, context):
    model = net(kind).double().eval()
    images = stream((12, 5, 1, 2, 8, 6), dtype=torch.float64)
    with torch.no_grad():
        expected = [
            slow_lame(model(x).tolist(), features_of(model, kind, x).tolist(), k=5)[0]
            for x in images
        ]
        plain = [model(x).log_softmax(dim=1) for x in images]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with context():
        adapter = dab.create("lame", model)
        answers = [adapter(x) for x in images]
    for answer, rows in zip(answers, expected, strict=True):
        torch.testing.assert_close(
            answer, torch.tensor(rows, dtype=answer.dtype), rtol=0, atol=1e-9
        )
    assert same(dict(model.state_dict()), before)
    assert adapter.totals.updates == 0
    # A sample alone has no neighbors; with others around, answers move.
    torch.testing.assert_close(answers[2], plain[2], rtol=0, atol=1e-9)
    assert (answers[0] - plain[0]).abs().max() > 1


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 9),
    st.integers(2, 5),
    st.integers(1, 10),
    st.sampled_from([1.0, 10.0]),
    st.sampled_from(["knn", "rbf", "linear"]),
)
def test_any_correction_equals_the_twin(seed, n, classes, k, sharpness, affinity):
    rng = torch.Generator().manual_seed(seed)
    z = sharpness * torch.randn(n, classes, generator=rng, dtype=torch.float64)
    features = torch.randn(n, 4, generator=rng, dtype=torch.float64)
    output = Laplacian(k, affinity)
    affinities = torch.tensor(AFFINITIES[affinity](features.tolist(), k), dtype=torch.float64)
    torch.testing.assert_close(output.affinity(features), affinities, rtol=0, atol=1e-12)
    rows, _ = slow_lame(z.tolist(), features.tolist(), k, affinity=affinity)
    expected = torch.tensor(rows, dtype=torch.float64)
    torch.testing.assert_close(output.correct(z, features), expected, rtol=0, atol=1e-9)


def test_it_stops_by_energy_or_by_rounds():
    taken = set()
    for seed in range(12):
        rng = torch.Generator().manual_seed(seed)
        z = torch.randn(9, 3, generator=rng, dtype=torch.float64)
        features = torch.randn(9, 4, generator=rng, dtype=torch.float64)
        _, rounds = slow_lame(z.tolist(), features.tolist(), k=2)
        for limit in (1, 3, rounds):
            expected, _ = slow_lame(z.tolist(), features.tolist(), k=2, rounds=limit)
            found = Laplacian(2, rounds=limit).correct(z, features)
            expected = torch.tensor(expected, dtype=torch.float64)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        # No limit that is higher makes a difference.
        found = Laplacian(2, rounds=10_000).correct(z, features).tolist()
        assert rounds == 100 or found == Laplacian(2).correct(z, features).tolist()
        taken.add(rounds)
    assert min(taken) < 100
    assert len(taken) > 3


def test_the_answer_is_a_fixed_point():
    """q = softmax(log p + W q), checked on the answer itself."""
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(20, 4, generator=rng, dtype=torch.float64)
    features = torch.randn(20, 6, generator=rng, dtype=torch.float64)
    output = Laplacian(3)
    q = output.correct(z, features).exp()
    again = (z.log_softmax(dim=1) + output.affinity(features) @ q).softmax(dim=1)
    torch.testing.assert_close(again, q, rtol=0, atol=1e-4)
    torch.testing.assert_close(q.sum(dim=1), torch.ones_like(q[:, 0]))


def test_saturated_predictions_stay_finite():
    z = torch.zeros(4, 3)
    z[[0, 1, 2, 3], [0, 1, 2, 0]] = 1000.0
    answer = Laplacian(2).correct(z, torch.eye(4) + 0.1)
    assert torch.isfinite(answer).all()
    assert answer.argmax(dim=1).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("affinity", AFFINITIES)
def test_samples_that_are_the_same_stay_finite(affinity):
    """Their distances are all 0, and so is the width of the rbf affinity."""
    z = torch.tensor([[1.0, 0.0], [0.0, 0.5], [3.0, 1.0]])
    answer = Laplacian(2, affinity).correct(z, torch.ones(3, 4))
    assert torch.isfinite(answer).all()
    assert answer.argmax(dim=1).tolist() == [0, 0, 0]


def test_length_of_features_and_order_of_samples_do_not_matter():
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(9, 4, generator=rng, dtype=torch.float64)
    features = torch.randn(9, 6, generator=rng, dtype=torch.float64)
    expected = Laplacian(3).correct(z, features)
    lengths = 0.1 + 9 * torch.rand(9, 1, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(Laplacian(3).correct(z, features * lengths), expected)
    order = torch.randperm(9, generator=rng)
    torch.testing.assert_close(Laplacian(3).correct(z[order], features[order]), expected[order])


def test_options_reach_the_correction():
    images = torch.cat(stream())
    default, same_k, other = (
        dab.create("lame", net("layernorm"), **options)(images)
        for options in ({}, {"neighbors": 5, "affinity": "knn"}, {"neighbors": 2})
    )
    assert torch.equal(default, same_k)
    assert not torch.allclose(default, other)
    rbf = dab.create("lame", net("layernorm"), affinity="rbf")(images)
    assert not torch.allclose(default, rbf)
    pixels = dab.create("lame", net("layernorm"), features=lambda x: x)(images)
    rows, _ = slow_lame(
        net("layernorm").eval()(images).tolist(), images.view(-1, 3 * SIZE**2).tolist(), k=5
    )
    torch.testing.assert_close(pixels, torch.tensor(rows), rtol=0, atol=1e-3)
    assert pixels.shape == (len(images), CLASSES)
    with pytest.raises(ValueError, match=r"neighbors must be an integer .*, got 0"):
        dab.create("lame", net("layernorm"), neighbors=0)
