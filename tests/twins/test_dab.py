"""DAB against twins written from the paper: every decision, every number of an update."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.buffers import SlowBalanced
from tests.support.nets import net, stream


class EchoNorm(nn.Module):
    """A 'classifier' whose images are the logits, with one norm parameter that may be trained."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes))
        self.trained_on: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            self.trained_on.append(images.detach().clone())
        return images.flatten(1) * self.weight


class SlowDAB:
    """One call of DAB with fixed predictions, written with loops from Algorithm 1."""

    def __init__(self, M: int, N: int, C: int, trigger: str, admission: str, filling: str) -> None:
        self.N, self.C, self.trigger = N, C, trigger
        self.admission, self.filling = admission, filling
        self.tendency = [1 / C] * C
        self.buffer, self.images = SlowBalanced(M), {}
        self.replaced: list[int] = []
        self.seen: list[float] = []

    @staticmethod
    def softmax(z: list[float]) -> list[float]:
        e = [math.exp(value - max(z)) for value in z]
        return [value / sum(e) for value in e]

    def __call__(self, logits: list[list[float]]) -> dict[str, object]:
        y = [self.softmax(row) for row in logits]
        w = []
        for row in y:
            dot = sum(a * b for a, b in zip(row, self.tendency, strict=True))
            norms = math.sqrt(sum(a * a for a in row)) * math.sqrt(
                sum(b * b for b in self.tendency)
            )
            w.append(1 - dot / norms)
        admitted, margins = [], []
        for i in range(len(y)):
            if self.admission == "batch":
                mean = sum(w) / len(w)
            else:
                self.seen.append(w[i])
                weights = [0.99 ** (len(self.seen) - 1 - t) for t in range(len(self.seen))]
                mean = sum(a * b for a, b in zip(weights, self.seen, strict=True)) / sum(weights)
            margins.append(abs(w[i] - mean))
            if w[i] > mean:
                admitted.append(i)
        for c in range(self.C):
            self.tendency[c] = 0.9 * self.tendency[c] + 0.1 * sum(row[c] for row in y) / len(y)
        evictions = 0
        for i in admitted:
            label = max(range(self.C), key=lambda c: y[i][c])
            slot, evicted = self.buffer.place(label)
            self.images[slot] = logits[i]
            if evicted is None and self.filling == "wait":
                continue
            evictions += evicted is not None
            outgoing = label if evicted is None else evicted
            token = {"incoming": label, "outgoing": outgoing, "any": len(self.replaced)}
            if token[self.trigger] not in self.replaced:
                self.replaced.append(token[self.trigger])
        enough = self.N / 4 if self.trigger == "any" else min(self.N / 4, max(1, self.C / 2))
        update = len(self.replaced) >= max(1, math.floor(enough))
        if update:
            self.replaced = []
        return {
            "admitted": len(admitted),
            "replaced": evictions,
            "fill": len(self.buffer.items),
            "updated": update,
            "margin": min((m for m in margins if m > 0), default=1.0),
        }


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    M=st.integers(1, 12),
    N=st.integers(1, 16),
    C=st.integers(2, 9),
    trigger=st.sampled_from(["outgoing", "incoming", "any"]),
    admission=st.sampled_from(["batch", "running"]),
    filling=st.sampled_from(["wait", "adapt"]),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12),
)
def test_every_decision_equals_the_twin(seed, M, N, C, trigger, admission, filling, sizes):
    rng = np.random.default_rng(seed)
    model = EchoNorm(C).double()
    adapter = dab.DAB(
        model,
        M,
        batch_size=N,
        lr=1e-30,
        trigger=trigger,
        admission=admission,
        filling=filling,
        seed=3,
    )
    twin = SlowDAB(M, N, C, trigger, admission, filling)
    generator = torch.Generator().manual_seed(3)
    favorite = 0
    for n in sizes:
        favorite = favorite if rng.random() < 0.5 else int(rng.integers(C))  # correlated
        logits = rng.normal(0, 2, (n, C))
        logits[:, favorite] += 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of calls with a single sample
            adapter(torch.tensor(logits).view(n, C, 1, 1))
        expected = twin(logits.tolist())
        if expected.pop("margin") < 1e-12:
            return  # too close for doubles to tell
        did = adapter.last
        assert {key: getattr(did, key) for key in expected} == expected
        policy = adapter.memory.buffer.policy
        assert [list(p) for p in zip(policy.labels, policy.order, strict=True)] == twin.buffer.items
        if expected["updated"]:
            slots = torch.randperm(len(twin.buffer.items), generator=generator)[:N].tolist()
            drawn = torch.tensor([twin.images[slot] for slot in slots], dtype=torch.float64)
            assert torch.equal(model.trained_on[-1].flatten(1), drawn)
        assert len(model.trained_on) == adapter.totals.updates
    np.testing.assert_allclose(adapter.memory.tendency.numpy(), twin.tendency, atol=1e-12)


class SlowUpdate:
    """DAB's update for logits = W (gamma * x_hat + beta) + a, the gradient derived by hand."""

    def __init__(self, model: nn.Sequential, lr: float) -> None:
        norm, head = model[1], model[2]
        self.eps, self.lr = norm.eps, lr
        self.gamma, self.beta = norm.weight.tolist(), norm.bias.tolist()
        self.W, self.a = head.weight.tolist(), head.bias.tolist()
        self.source = [list(self.gamma), list(self.beta)]
        self.velocity: list[list[float]] | None = None
        self.b = [1 / len(self.W)] * len(self.W)

    def __call__(self, images: Tensor) -> float:
        C, D, n = len(self.W), len(self.gamma), len(images)
        x_hat, y, H = [], [], []
        for x in images.flatten(1).tolist():
            mean = sum(x) / D
            variance = sum((v - mean) ** 2 for v in x) / D
            x_hat.append([(v - mean) / math.sqrt(variance + self.eps) for v in x])
            features = [self.gamma[j] * x_hat[-1][j] + self.beta[j] for j in range(D)]
            z = [sum(self.W[c][j] * features[j] for j in range(D)) + self.a[c] for c in range(C)]
            y.append(SlowDAB.softmax(z))
            H.append(-sum(p * math.log(p) for p in y[-1]))
        diversity = []
        for row in y:
            dot = sum(p * q for p, q in zip(row, self.b, strict=True))
            norms = math.sqrt(sum(p * p for p in row)) * math.sqrt(sum(q * q for q in self.b))
            diversity.append(1 - dot / norms)
        low, high = min(diversity), max(diversity)
        w = []
        for i in range(n):
            scaled = (diversity[i] - low) / (high - low) if high > low else 0.0
            w.append(min(10.0, max(1.0, math.log(C) / H[i])) * math.exp(scaled))
        loss = sum(w[i] * H[i] for i in range(n)) / n
        # dH/dz_c = -y_c (log y_c + H); the weights are constants.
        d_gamma, d_beta = [0.0] * D, [0.0] * D
        for i in range(n):
            for c in range(C):
                dz = -w[i] / n * y[i][c] * (math.log(y[i][c]) + H[i])
                for j in range(D):
                    d_gamma[j] += dz * self.W[c][j] * x_hat[i][j]
                    d_beta[j] += dz * self.W[c][j]
        gradient = [d_gamma, d_beta]
        if self.velocity is None:
            self.velocity = [list(part) for part in gradient]
        else:
            self.velocity = [
                [0.9 * v + g for v, g in zip(*parts, strict=True)]
                for parts in zip(self.velocity, gradient, strict=True)
            ]
        for k, theta in enumerate((self.gamma, self.beta)):
            for j in range(D):
                theta[j] -= self.lr * (gradient[k][j] + 0.9 * self.velocity[k][j])  # Nesterov
                theta[j] = 0.99 * theta[j] + 0.01 * self.source[k][j]
        for c in range(C):
            self.b[c] = 0.9 * self.b[c] + 0.1 * sum(row[c] for row in y) / n
        return loss


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 7), st.integers(1, 6), st.sampled_from([1.0, 30.0]))
def test_updates_equal_the_twin(seed, C, N, sharpness):
    """Loss, weights, gradient, momentum and ensembling, over several updates, to 1e-9."""
    rng = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, C)).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
    model[2].weight.data *= sharpness**0.5  # saturated predictions for large ones
    twin = SlowUpdate(model, lr=0.05)
    adapter = dab.DAB(model, 8, batch_size=N, lr=0.05, admission="batch", filling="adapt")
    trained_on: list[Tensor] = []
    model[0].register_forward_hook(
        lambda _, inputs, __: trained_on.append(inputs[0]) if torch.is_grad_enabled() else None
    )
    for _ in range(12):
        adapter(torch.randn(5, 3, 2, 2, generator=rng, dtype=torch.float64))
        if adapter.last.updated:
            assert adapter.last.loss == pytest.approx(twin(trained_on[-1]), abs=1e-9)
        assert len(trained_on) == adapter.totals.updates
        assert model[1].weight.tolist() == pytest.approx(twin.gamma, abs=1e-9)
        assert model[1].bias.tolist() == pytest.approx(twin.beta, abs=1e-9)
        assert adapter.memory.batch_tendency.tolist() == pytest.approx(twin.b, abs=1e-9)
        momentum = [adapter.trained.optimizer.state[m] for m in adapter.trained.masters]
        if twin.velocity is not None:
            for part, state in zip(twin.velocity, momentum, strict=True):
                assert state["momentum_buffer"].tolist() == pytest.approx(part, abs=1e-9)
            # Saturated predictions magnify rounding from one update to the next: each starts equal.
            twin.velocity = [state["momentum_buffer"].tolist() for state in momentum]
        twin.gamma, twin.beta = model[1].weight.tolist(), model[1].bias.tolist()
        twin.b = adapter.memory.batch_tendency.tolist()
    assert adapter.totals.updates >= 3


def simulated_stream(C: int, error: float, sorted_: bool, seed: int) -> tuple[Tensor, Tensor]:
    """Probability vectors of 20,000 predictions, by the recipe beside the published fractions."""
    rng = np.random.default_rng(seed)
    per = 50 if C == 1000 else 200
    true = np.repeat(np.arange(C), per)
    if not sorted_:
        rng.shuffle(true)
    true = true[:20_000]
    n = len(true)
    near = np.stack([rng.choice(np.delete(np.arange(C), c), 10, replace=False) for c in range(C)])
    wrong = rng.random(n) < error
    a_near_one = near[true, rng.integers(10, size=n)]
    anyone = rng.integers(C, size=n)
    predicted = np.where(wrong, np.where(rng.random(n) < 0.7, a_near_one, anyone), true)
    c = np.where(wrong, rng.beta(2, 2, n), rng.beta(4, 1.2, n))
    y = np.full((n, C), (0.2 * (1 - c) / C)[:, None])
    rows = np.arange(n)
    np.add.at(y, (rows, predicted), c)
    np.add.at(y, (rows, true), 0.3 * (1 - c))
    np.add.at(y, (rows[:, None], near[true]), (0.5 * (1 - c) / 10)[:, None])
    y /= y.sum(1, keepdims=True)
    return torch.tensor(y, dtype=torch.float32), torch.tensor(true)


FRACTIONS = {  # (C, error, sorted): {trigger: (M = 64, M = 4096)}
    (1000, 0.6, False): {
        "incoming": (0.997, 0.633),
        "outgoing": (0.997, 0.633),
        "any": (0.997, 0.633),
    },
    (1000, 0.4, True): {
        "incoming": (0.633, 0.441),
        "outgoing": (0.863, 0.658),
        "any": (0.994, 0.696),
    },
    (109, 0.5, True): {
        "incoming": (0.594, 0.345),
        "outgoing": (0.642, 0.393),
        "any": (0.987, 0.578),
    },
}


@pytest.mark.parametrize("case", FRACTIONS, ids=str)
def test_the_fraction_of_calls_that_update(case):
    C = case[0]
    y, _ = simulated_stream(*case, seed=0)
    images = y.log().view(-1, C, 1, 1)
    for trigger, fractions in FRACTIONS[case].items():
        for capacity, expected in zip((64, 4096), fractions, strict=True):
            adapter = dab.DAB(EchoNorm(C), capacity, lr=1e-30, trigger=trigger)
            for batch in images.split(64):
                adapter(batch)
                adapter.model.trained_on.clear()
            measured = adapter.totals.updates / adapter.totals.calls
            assert measured == pytest.approx(expected, abs=0.06), (trigger, capacity)
            assert 0.4 < adapter.totals.admitted / adapter.totals.samples < 0.75


def test_the_prediction_comes_from_before_the_update():
    adapter = dab.DAB(net("layernorm"), 8, batch_size=8, lr=0.1)
    for images in stream():
        expected = adapter.predict(images)
        assert torch.equal(adapter(images), expected)
    assert adapter.totals.updates > 0


def test_nothing_is_updated_before_the_buffer_is_full():
    adapter = dab.DAB(net("layernorm"), 20, batch_size=8)
    for images in stream():
        adapter(images)
        assert adapter.last.fill == 20 or not adapter.last.updated
    assert adapter.totals.updates > 0
    eager = dab.DAB(net("layernorm"), 1024, batch_size=8, filling="adapt")
    for images in stream():
        eager(images)
    assert eager.totals.updates > 0 == eager.totals.replaced


@pytest.mark.parametrize("batch_size", [1, 8])
def test_single_samples_adapt(batch_size):
    singles = [image[None] for batch in stream() for image in batch]
    admission = None if batch_size == 1 else "running"
    adapter = dab.DAB(net("layernorm"), 8, batch_size=batch_size, admission=admission)
    for image in singles:
        adapter(image)
    assert adapter.totals.updates > 0
    assert 0.2 < adapter.totals.admitted / len(singles) < 0.8


def test_single_samples_compared_with_themselves_are_warned_of_once():
    adapter = dab.DAB(net("layernorm"), 8)
    first, second, *others = stream((1, 1, 1, 1))
    adapter(first)
    with pytest.warns(UserWarning, match="running"):
        adapter(second)
    for image in others:  # another warning would be an error
        adapter(image)
    assert adapter.totals.admitted == 0


def test_the_layers_own_statistics_stay():
    model = net("batchnorm")
    before = {k: v.clone() for k, v in model.state_dict().items() if "running" in k}
    tracked = model[1].num_batches_tracked.clone()
    adapter = dab.DAB(model, 8, batch_size=8)
    for images in stream():
        adapter(images)
    assert adapter.totals.updates > 0
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert model[1].num_batches_tracked == tracked


def test_a_model_without_norms_is_refused_untouched():
    model = net("none")
    with pytest.raises(ValueError, match="no normalization layer"):
        dab.DAB(model)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"capacity": 0}, "capacity"),
        ({"batch_size": 0}, "batch_size"),
        ({"lr": -1.0}, "lr must be a number greater than 0"),
        ({"ensemble": 1.5}, "ensemble"),
        ({"trigger": "sometimes"}, "'outgoing', 'incoming' or 'any'"),
        ({"admission": "all"}, "'batch', 'running'"),
        ({"filling": "never"}, "'wait' or 'adapt'"),
        ({"storage": "disk"}, "'auto', 'uint8' or 'native'"),
    ],
)
def test_wrong_options_are_refused_and_the_model_is_untouched(options, reason):
    model = net("layernorm")
    with pytest.raises(ValueError, match=reason):
        dab.DAB(model, **options)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_pixels_that_cannot_be_stored_change_nothing():
    adapter = dab.DAB(net("layernorm"), 8, batch_size=8, storage="uint8")
    fresh = adapter.state_dict()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        adapter(stream()[0] * 2 - 1)
    assert same(adapter.state_dict(), fresh)
    for images in stream()[:5]:
        adapter(images)
    before = adapter.state_dict()
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        adapter(stream()[5] * 2 - 1)
    assert same(adapter.state_dict(), before)


class Explosive(torch.autograd.Function):
    """Identity whose gradient is infinite."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf")


class Exploding(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.armed = model, False

    def forward(self, images: Tensor) -> Tensor:
        logits = self.model(images)
        return Explosive.apply(logits) if self.armed else logits


def test_a_gradient_that_is_not_finite_is_skipped_counted_and_logged_once(caplog):
    model = Exploding(net("layernorm"))
    adapter = dab.DAB(model, 8, batch_size=8)
    for images in stream():
        adapter(images)
    before, updates = adapter.state_dict()["weights"], adapter.totals.updates
    model.armed = True
    for images in stream():
        adapter(images)
        assert not adapter.last.updated
    assert adapter.totals.updates == updates
    assert adapter.totals.skipped >= 2
    assert same(adapter.state_dict()["weights"], before)
    assert len([record for record in caplog.records if "not finite" in record.message]) == 1


def test_a_model_that_cuts_gradients_is_named():
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = net("layernorm")

        @torch.no_grad()
        def forward(self, images: Tensor) -> Tensor:
            return self.model(images)

    adapter = dab.DAB(Frozen(), 1, batch_size=1)
    with pytest.raises(RuntimeError, match="disable gradients"):
        adapter(torch.cat(stream()))


def test_a_model_built_under_inference_mode_is_refused():
    with torch.inference_mode():
        model = net("layernorm")
    with pytest.raises(ValueError, match="inference_mode"):
        dab.DAB(model)


def test_outputs_with_a_logits_attribute_are_understood():
    class Output:
        def __init__(self, logits: Tensor) -> None:
            self.logits = logits

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = net("layernorm")

        def forward(self, images: Tensor) -> Output:
            return Output(self.model(images))

    wrapped, plain = dab.DAB(Wrapped(), 8, batch_size=8), dab.DAB(net("layernorm"), 8, batch_size=8)
    for images in stream():
        assert torch.equal(wrapped(images), plain(images))


def test_half_precision_moves_by_less_than_its_own_resolution():
    """A scale near 1 has steps of 8e-3 in bfloat16: small updates must add up all the same."""
    model = net("layernorm").bfloat16()
    adapter = dab.DAB(model, 8, batch_size=8, ensemble=1.0, lr=1e-3)
    source = [master.detach().clone() for master in adapter.trained.masters]
    for images in stream(dtype=torch.bfloat16) * 10:
        adapter(images)
    moved = [m - s for m, s in zip(adapter.trained.masters, source, strict=True)]
    assert max(m.abs().max().item() for m in moved) > 1e-3
    for parameter, master in zip(adapter.trained.parameters, adapter.trained.masters, strict=True):
        assert torch.equal(parameter, master.bfloat16())


def test_the_registry():
    assert dab.methods() == sorted(dab.methods())
    assert "dab" in dab.methods()
    with pytest.raises(ValueError, match=r"'dba'.*dab"):
        dab.create("dba", net("layernorm"))
    with pytest.raises(TypeError, match=r"'capactiy'.*capacity"):
        dab.create("dab", net("layernorm"), capactiy=3)
    with pytest.raises(ValueError, match="already registered"):

        @dab.register("dab")
        class Other(dab.Adapter):
            pass
