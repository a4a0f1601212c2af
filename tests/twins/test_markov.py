"""The Markov prior against a loop twin, and what it promises about streams."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dab
from dab.outputs import Markov
from dab.testing import same
from tests.support.nets import net, stream


def softmax(row: list[float]) -> list[float]:
    exponentials = [math.exp(value - max(row)) for value in row]
    return [value / sum(exponentials) for value in exponentials]


class Expert:
    """One hidden Markov chain."""

    def __init__(self, C: int, memory: float, tau: float, rho: float) -> None:
        self.memory, self.tau, self.rho = memory, tau, rho
        self.b = [1 / C] * C
        self.score = -float(Markov.doubt)


class SlowMarkov:
    """One sample, one expert, one class after the other, from the docstring's equations."""

    def __init__(self, C: int) -> None:
        self.C, self.of = C, Markov
        self.m = {M: [1 / C] * C for M in (*Markov.memories, Markov.reference)}
        self.W = dict.fromkeys(self.m, float(Markov.caution))
        self.experts = [
            Expert(C, memory, tau, rho)
            for memory in Markov.memories
            for tau in Markov.trust
            for rho in Markov.stay
        ]

    def weights(self) -> list[float]:
        return softmax([0.0, *(expert.score for expert in self.experts)])

    def forward(self, p: list[float]) -> list[list[float]]:
        """The experts' beliefs after a sample."""
        C, r = range(self.C), self.m[Markov.reference]
        for k in self.experts:
            m = self.m[k.memory]
            prior = [k.rho * k.b[c] + (1 - k.rho) * m[c] for c in C]
            match = sum(prior[c] * p[c] / r[c] for c in C)
            gain = math.log(Markov.slip + (1 - Markov.slip) * match)
            k.score = Markov.patience * k.score + gain - Markov.delta * math.log(self.C)
            joint = [prior[c] * (p[c] / m[c]) ** k.tau for c in C]
            k.b = [value / sum(joint) for value in joint]
        best = max(k.score for k in self.experts)
        for k in self.experts:
            k.score += min(max(best, -Markov.limit), Markov.limit) - best
        return [k.b for k in self.experts]

    def update_means(self, p: list[float]) -> None:
        for M in self.m:
            self.W[M] = (1 - 1 / M) * self.W[M] + 1
            floored = [(x + Markov.floor / self.C) / (1 + Markov.floor) for x in p]
            self.m[M] = [m + (x - m) / self.W[M] for m, x in zip(self.m[M], floored, strict=True)]

    def __call__(self, z: list[list[float]], mode: str) -> list[list[float]]:
        C = range(self.C)
        p = [softmax(row) for row in z]
        beliefs, weights, means = [], [], []
        for row in p:
            means.append(dict(self.m))
            beliefs.append(self.forward(row))
            weights.append(self.weights())
            self.update_means(row)
        if mode == "smooth":
            weights = [weights[-1]] * len(z)
            for number, k in enumerate(self.experts):
                beta = [1.0] * self.C
                for i in reversed(range(len(z))):
                    m = means[i][k.memory]
                    both = [beliefs[i][number][c] * beta[c] for c in C]
                    beliefs[i][number] = [value / sum(both) for value in both]
                    h = [(p[i][c] / m[c]) ** k.tau * beta[c] for c in C]
                    drawn = sum(m[c] * h[c] for c in C)
                    beta = [k.rho * h[c] / drawn + 1 - k.rho for c in C]
        answers = []
        for row, y, w, b in zip(z, p, weights, beliefs, strict=True):
            q = [w[0] * y[c] + sum(x * one[c] for x, one in zip(w[1:], b, strict=True)) for c in C]
            answers.append([row[c] + math.log(q[c]) - math.log(y[c]) for c in C])
        return answers


def labels(rng: np.random.Generator, n: int, C: int, stay: float) -> np.ndarray:
    """A chain that stays where it is with a probability."""
    chain = rng.integers(0, C, n)
    for i in range(1, n):
        if rng.random() < stay:
            chain[i] = chain[i - 1]
    return chain


def answers_to(
    chain: np.ndarray, rng: np.random.Generator, C: int, signal: float = 2.0, bias: float = 0.0
) -> Tensor:
    """The logits of a model that is often wrong, and may prefer some classes."""
    z = rng.normal(0, 1, (len(chain), C)) + rng.normal(0, bias, C)
    z[np.arange(len(chain)), chain] += signal
    return torch.tensor(z)


def error(logits: Tensor, chain: np.ndarray) -> float:
    return 100 * (logits.argmax(1) != torch.tensor(chain)).double().mean().item()


def corrected(output: Markov, z: Tensor, size: int = 64) -> Tensor:
    return torch.cat([output.correct(part, None) for part in z.split(size)])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 6),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.5, 0.95]),
    st.sampled_from(["smooth", "filter"]),
)
def test_markov_equals_the_twin_whatever_the_calls(seed, C, sizes, stay, mode):
    rng = np.random.default_rng(seed)
    z = answers_to(labels(rng, sum(sizes), C, stay), rng, C, signal=3)
    twin, output = SlowMarkov(C), Markov(mode)
    for part in z.split(sizes):
        expected = torch.tensor(twin(part.tolist(), mode), dtype=torch.float64)
        torch.testing.assert_close(output.correct(part, None), expected, rtol=0, atol=1e-9)
        weights = torch.tensor(twin.weights(), dtype=torch.float64)
        torch.testing.assert_close(output.weights, weights, rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 30), st.integers(1, 300))
def test_any_split_into_calls_leaves_the_same_state(seed, C, n):
    rng = np.random.default_rng(seed)
    z = answers_to(labels(rng, n, C, 0.9), rng, C).float()
    whole, single = Markov("filter"), Markov("filter")
    smooth = Markov("smooth")
    expected = torch.cat([single.correct(row[None], None) for row in z])
    torch.testing.assert_close(whole.correct(z, None), expected)
    smooth.correct(z, None)
    for output in (whole, smooth):
        torch.testing.assert_close(output.state_dict(), single.state_dict())


def test_a_single_sample_is_answered_alike_in_both_modes():
    rng = np.random.default_rng(0)
    z = answers_to(labels(rng, 200, 5, 0.9), rng, 5)
    assert torch.equal(corrected(Markov("smooth"), z, 1), corrected(Markov("filter"), z, 1))


def test_the_filter_never_looks_ahead():
    rng = np.random.default_rng(0)
    z = answers_to(labels(rng, 100, 5, 0.9), rng, 5)
    changed = torch.cat([z[:50], z[50:].flip(1)])
    first, second = (Markov("filter").correct(part, None) for part in (z, changed))
    assert torch.equal(first[:50], second[:50])
    assert not torch.equal(first[50:], second[50:])


@pytest.mark.parametrize("mode", ["smooth", "filter"])
@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_a_shuffled_stream_tends_to_the_models_own_answers(mode, bias):
    """Also where the model prefers some classes: that is a bias, not an order."""
    rng = np.random.default_rng(1)
    chain = labels(rng, 4000, 10, 0.0)
    z = answers_to(chain, rng, 10, bias=bias).float()
    output = Markov(mode)
    answers = corrected(output, z)
    assert torch.equal(answers[-1000:], z[-1000:])
    assert output.weights[0] == 1
    assert error(answers, chain) <= error(z, chain) + 0.3


@pytest.mark.parametrize("run", [5, 10, 100, 1000])
def test_runs_of_any_length_are_recognized(run):
    rng = np.random.default_rng(2)
    chain = np.repeat(rng.integers(0, 10, max(3000 // run, 10)), run)
    z = answers_to(chain, rng, 10)
    smooth, causal = (error(corrected(Markov(mode), z), chain) for mode in ("smooth", "filter"))
    assert smooth < 0.6 * error(z, chain)
    assert causal < 0.95 * error(z, chain)


def test_the_weights_follow_a_stream_whose_order_changes():
    rng = np.random.default_rng(3)
    output, none = Markov(), []
    for stay in (0.0, 0.95, 0.0):
        corrected(output, answers_to(labels(rng, 3000, 10, stay), rng, 10))
        none.append(output.weights[0].item())
    assert none[0] > 0.99
    assert none[1] < 0.01
    assert none[2] > 0.99
    assert len(output.names) == len(output.weights)


@pytest.mark.parametrize(("stay", "sign"), [(0.0, -1), (0.98, 1)])
def test_scores_reach_their_bound_and_no_further(stay, sign):
    rng = np.random.default_rng(8)
    output, best = Markov("filter"), []
    for part in answers_to(labels(rng, 3000, 10, stay), rng, 10, signal=4).split(100):
        output.correct(part, None)
        best.append(sign * max(output.state_dict()["scores"]))
    assert max(best) <= Markov.limit + 1e-9
    assert max(best[-10:]) > 0.97 * Markov.limit


def test_shares_add_up_the_weights_by_run_length():
    rng = np.random.default_rng(9)
    output = Markov()
    assert output.shares() == {
        "no order": 1,
        "runs of about 2.5": 0,
        "runs of about 10": 0,
        "runs of about 200": 0,
    }
    corrected(output, answers_to(labels(rng, 1000, 10, 0.9), rng, 10))
    weights = dict(zip(output.names, output.weights.tolist(), strict=True))
    shares = output.shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["runs of about 10"] == pytest.approx(
        sum(weight for name, weight in weights.items() if name.endswith("stay 0.9"))
    )
    assert shares["runs of about 10"] > 0.5


@pytest.mark.parametrize(
    "parts", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.exhaustive])]
)
def test_up_to_a_million_samples_stay_finite(parts):
    """With certain, wrong and contradictory answers, shuffled and in runs by turns."""
    rng = np.random.default_rng(4)
    output = Markov("filter")
    for number in range(parts):
        run = 1 if number % 2 else 50
        z = 30 * answers_to(np.repeat(rng.integers(0, 3, 10_000 // run), run), rng, 3).float()
        assert torch.isfinite(output.correct(z, None)).all()
    for value in output.state_dict().values():
        assert torch.isfinite(torch.as_tensor(value)).all()


def test_probabilities_that_underflow_are_answered():
    z = torch.tensor([[0.0, -1e4, 1e4], [1e4, 0.0, -1e4], [0.0, 0.0, 0.0]])
    output = Markov()
    for _ in range(50):
        answers = output.correct(z, None)
        assert torch.isfinite(answers).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_answers_have_the_dtype_of_the_logits(dtype):
    rng = np.random.default_rng(5)
    z = answers_to(labels(rng, 300, 5, 0.9), rng, 5).to(dtype)
    answers = Markov().correct(z, None)
    assert answers.dtype == dtype
    assert not torch.equal(answers, z)


def test_markov_saves_resumes_and_resets_to_the_bit():
    rng = np.random.default_rng(6)
    z = answers_to(labels(rng, 900, 7, 0.9), rng, 7).float()
    whole, stopped, resumed = Markov(), Markov(), Markov()
    expected = [whole.correct(part, None) for part in z.split(64)]
    for part in z.split(64)[:5]:
        stopped.correct(part, None)
    saved = stopped.state_dict()
    kept = {name: torch.as_tensor(value).clone() for name, value in saved.items()}
    resumed.load_state_dict(saved)
    assert same([resumed.correct(part, None) for part in z.split(64)[5:]], expected[5:])
    assert all(torch.equal(torch.as_tensor(saved[name]), kept[name]) for name in kept)
    stopped.reset()
    assert torch.equal(stopped.correct(z[:64], None), expected[0])
    fresh = Markov()
    fresh.load_state_dict(Markov().state_dict())
    assert torch.equal(fresh.correct(z[:64], None), expected[0])


def test_an_empty_batch_changes_nothing():
    output = Markov()
    assert output.correct(torch.zeros(0, 3), None).shape == (0, 3)
    assert output.weights[0] == 1


def test_long_calls_are_smoothed_in_pieces():
    rng = np.random.default_rng(7)
    z = answers_to(labels(rng, 600, 4, 0.9), rng, 4)
    whole, pieces = Markov(), Markov()
    assert torch.equal(whole.correct(z, None), corrected(pieces, z, 256))


def test_any_method_takes_it():
    plain = dab.create("tent", net("layernorm"))
    adapter, twin = dab.create("tent", net("layernorm"), output="markov"), Markov()
    for images in stream():
        assert torch.equal(adapter(images), twin.correct(plain(images), None))


def test_the_mode_is_checked():
    with pytest.raises(ValueError, match="mode must be 'smooth' or 'filter', got 'forward'"):
        Markov("forward")  # type: ignore[arg-type]
