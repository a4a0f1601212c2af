"""Output corrections against loop twins, alone and with any method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.outputs import BatchPrior, CausalPrior, Laplacian, Output, outputs
from dab.testing import same
from tests.support.adapters import QUICK
from tests.support.nets import net, stream


def softmax(row: list[float]) -> list[float]:
    exponentials = [math.exp(value - max(row)) for value in row]
    return [value / sum(exponentials) for value in exponentials]


def random_logits(seed: int, n: int, classes: int) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(0, 2, (n, classes)))


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(2, 9))
def test_batch_prior_equals_the_twin(seed, n, C):
    z = random_logits(seed, n, C)
    y = [softmax(row) for row in z.tolist()]
    prior = [sum(row[c] for row in y) / n for c in range(C)]
    s = max(1 / n, 1 / C) / max(prior)
    expected = [[v * (prior[c] + s) / (1 + s * C) for c, v in enumerate(row)] for row in z.tolist()]
    np.testing.assert_allclose(BatchPrior().correct(z, None).numpy(), expected, atol=1e-12)


class SlowCausalPrior:
    """One sample after the other."""

    def __init__(self, C: int, decay=0.9, long=0.999, floor=0.1, patience=0.998) -> None:
        self.C, self.decay, self.long, self.floor, self.patience = C, decay, long, floor, patience
        self.predicted: list[int] = []
        self.gains: list[float] = []
        self.strengths: list[float] = []

    def share(self, c: int, decay: float) -> float:
        """Of class c among the predictions so far, one uniform guess before them."""
        n = len(self.predicted)
        total, weight = decay**n / self.C, decay**n
        for k, predicted in enumerate(self.predicted):
            total += decay ** (n - 1 - k) * (predicted == c)
            weight += decay ** (n - 1 - k)
        return total / weight

    def __call__(self, z: list[float]) -> list[float]:
        C = self.C
        weights = [self.patience**k for k in range(len(self.gains))][::-1]
        mean = sum(w * g for w, g in zip(weights, self.gains, strict=True)) / (sum(weights) or 1)
        strength = min(1.0, max(0.0, (mean / math.log(C) - 0.03) / 0.07))
        self.strengths.append(strength)
        ratios = [
            (C * self.share(c, self.decay) + self.floor)
            / (C * self.share(c, self.long) + self.floor)
            for c in range(C)
        ]
        best = max(range(C), key=lambda c: z[c])
        self.gains.append(math.log(ratios[best]))
        self.predicted.append(best)
        return [z[c] + strength * math.log(ratios[c]) for c in range(C)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 6), st.lists(st.integers(1, 20), max_size=6))
def test_causal_prior_equals_the_twin_whatever_the_calls(seed, C, sizes):
    z = random_logits(seed, sum(sizes), C)
    for start in range(0, len(z), 8):  # runs of one class, so that the prior is trusted at times
        z[start : start + 8, start // 8 % C] += 3
    twin, prior = SlowCausalPrior(C), CausalPrior()
    expected = [twin(row) for row in z.tolist()]
    got = [prior.correct(part, None) for part in z.split(sizes)] if sizes else []
    wanted = torch.tensor(expected, dtype=torch.float64).view(-1, C)
    torch.testing.assert_close(torch.cat([*got, z[:0]]), wanted, rtol=0, atol=1e-9)


def test_causal_prior_works_through_long_batches_in_chunks():
    z = random_logits(0, 700, 4)
    whole, single = CausalPrior(), CausalPrior()
    expected = torch.cat([single.correct(row[None], None) for row in z])
    torch.testing.assert_close(whole.correct(z, None), expected)


def test_the_twin_reaches_every_strength():
    twin, z = SlowCausalPrior(5), random_logits(1, 100, 5)
    for start in range(0, 60, 12):
        z[start : start + 12, start // 12] += 4
    for row in z.tolist():
        twin(row)
    assert min(twin.strengths) == 0
    assert max(twin.strengths) == 1
    assert any(0 < strength < 1 for strength in twin.strengths)


def predictions(order: str, seed: int = 0, C: int = 20, bias: float = 0.0) -> tuple[Tensor, Tensor]:
    """Logits of a model that errs in half of the cases, and the labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(C), 100)
    if order == "shuffled":
        rng.shuffle(labels)
    logits = rng.normal(0, 1, (len(labels), C))
    logits[np.arange(len(labels)), labels] += 2.2
    logits[:, :3] += bias  # a model that prefers some classes, whatever it sees
    return torch.tensor(logits), torch.tensor(labels)


def error(output: Output | None, logits: Tensor, labels: Tensor) -> float:
    answers = [p if output is None else output.correct(p, None) for p in logits.split(64)]
    return 100 * (torch.cat(answers).argmax(1) != labels).double().mean().item()


@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_causal_prior_fades_on_shuffled_streams_and_helps_on_sorted_ones(bias):
    shuffled, is_sorted = predictions("shuffled", bias=bias), predictions("sorted", bias=bias)
    assert error(CausalPrior(), *shuffled) <= error(None, *shuffled) + 0.3
    assert error(CausalPrior(), *is_sorted) <= error(BatchPrior(), *is_sorted)
    assert error(CausalPrior(), *is_sorted) < error(None, *is_sorted) - 5


def test_causal_prior_never_looks_ahead():
    z, _ = predictions("sorted")
    prior, other = CausalPrior(), CausalPrior()
    changed = z.clone()
    changed[500:] = z[500:].flip(0)
    first, second = prior.correct(z, None), other.correct(changed, None)
    assert torch.equal(first[:500], second[:500])
    assert not torch.equal(first[500:], second[500:])


def test_causal_prior_saves_and_resumes():
    z, _ = predictions("sorted")
    whole, stopped, resumed = CausalPrior(), CausalPrior(), CausalPrior()
    expected = [whole.correct(part, None) for part in z.split(64)]
    for part in z.split(64)[:9]:
        stopped.correct(part, None)
    resumed.load_state_dict(stopped.state_dict())
    assert same([resumed.correct(part, None) for part in z.split(64)[9:]], expected[9:])
    stopped.reset()
    assert torch.equal(stopped.correct(z[:64], None), expected[0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"decay": 1.0}, "decay"),
        ({"long_decay": 0.0}, "long_decay"),
        ({"patience": 2.0}, "patience"),
        ({"floor": 0.0}, "floor"),
        ({"trust_from": 0.3}, "trust_from"),
    ],
)
def test_causal_prior_options_are_checked(options, reason):
    with pytest.raises(ValueError, match=reason):
        CausalPrior(**options)


# LAME is a correction itself, and Sequence DAB learns from its own.
METHODS = [name for name in dab.methods() if name not in ("lame", "sequence_dab")]


def quick(method: str, output: Output | str | None, **more):
    return dab.create(method, net("layernorm"), output=output, **QUICK.get(method, {}), **more)


@pytest.mark.parametrize("output", outputs())
@pytest.mark.parametrize("method", METHODS)
def test_any_method_takes_any_correction(method, output):
    """The answer is corrected, what is learned is not; reset, resume and predict hold as well."""
    plain, corrected = quick(method, None), quick(method, output)
    twin = {"batch_prior": BatchPrior(), "causal_prior": CausalPrior()}.get(output)
    expected, answers = [], []
    for images in stream():
        expected.append(plain(images))
        before = corrected.state_dict()
        predicted = corrected.predict(images)
        assert same(corrected.state_dict(), before)
        answers.append(corrected(images))
        if twin is not None:
            assert torch.equal(answers[-1], twin.correct(expected[-1], None))
        if method not in (
            "adacontrast",
            "cotta",
            "memo",
            "t3a",
        ):  # whose answers are not plain predictions
            # Attention under autograd rounds differently.
            torch.testing.assert_close(predicted, answers[-1])
    assert same(corrected.state_dict()["weights"], plain.state_dict()["weights"])
    resumed = quick(method, output)
    resumed.load_state_dict(before)
    assert torch.equal(resumed(stream()[-1]), answers[-1])
    corrected.reset()
    assert same([corrected(images) for images in stream()], answers)


def test_roid_corrects_unless_told_not_to():
    roid, pure = quick("roid", "batch_prior"), quick("roid", None)
    default = dab.create("roid", net("layernorm"))
    for images in stream():
        corrected = roid(images)
        assert torch.equal(default(images), corrected)
        assert torch.equal(BatchPrior().correct(pure(images), None), corrected)


def test_lame_is_source_with_its_correction():
    lame = dab.create("lame", net("layernorm"))
    source = dab.create("source", net("layernorm"), output=Laplacian())
    for images in stream():
        assert torch.equal(lame(images), source(images))


def test_adapters_do_not_share_a_correction():
    prior = CausalPrior()
    first, second = quick("source", prior), quick("source", prior)
    for images in stream():
        first(images)
    assert torch.equal(second(stream()[0]), quick("source", "causal_prior")(stream()[0]))


def test_an_unknown_correction_is_named_and_the_model_is_untouched():
    model = net("layernorm")
    with pytest.raises(ValueError, match="unknown output 'prior'; did you mean 'batch_prior'"):
        dab.create("source", model, output="prior")
    assert model.training


def test_a_correction_of_ones_own():
    class Sharper(Output):
        def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
            return 2 * logits

    adapter = dab.create("source", nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), output=Sharper())
    images = stream()[0]
    assert torch.equal(adapter(images), 2 * adapter.model(images))
