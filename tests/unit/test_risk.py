"""The alarm: its false-alarm rate by simulation, and that it does raise one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dab.guard import RiskMonitor
from dab.guard.risk import LowerBound, largest_rate
from dab.testing import same

CLASSES = 5


def classify(images: Tensor) -> Tensor:
    """A classifier whose logits are the pixels."""
    return images.flatten(1)


def sample(rng: np.random.Generator, n: int, quality: float) -> tuple[Tensor, Tensor]:
    """Images with labels; the lower the quality, the more errors, mostly uncertain ones."""
    labels = torch.tensor(rng.integers(0, CLASSES, n))
    noise = torch.tensor(rng.normal(0, 1, (n, CLASSES)))
    noise[range(n), labels] += quality
    return noise[:, :, None, None].float(), labels


@pytest.mark.parametrize("drifting", [False, True])
def test_the_bound_is_below_the_mean_at_all_times_with_its_probability(drifting):
    rng = np.random.default_rng(0)
    alpha, streams, misses = 0.1, 50, 0
    for _ in range(streams):
        expected = np.full(1000, 0.2)
        if drifting:
            expected = 0.5 + 0.4 * np.sin(np.arange(1000) / 100 + rng.random())
        values = torch.tensor(rng.random(1000) < expected)
        bound, total, missed = LowerBound(alpha), 0.0, False
        for start in range(0, 1000, 20):
            bound.follow(values[start : start + 20])
            total += expected[start : start + 20].sum()
            missed |= bound.value > total / (start + 20)
        misses += missed
    assert misses <= alpha * streams


def test_the_bound_approaches_the_mean():
    rng = np.random.default_rng(0)
    bound = LowerBound(0.05)
    bound.follow(torch.tensor(rng.random(20_000) < 0.3))
    assert 0.27 < bound.value < 0.3


def test_the_largest_rate_covers_the_truth():
    rng = np.random.default_rng(0)
    shares = rng.binomial(300, 0.15, 500) / 300
    missed = np.mean([largest_rate(share, 300, 0.1) < 0.15 for share in shares])
    assert missed <= 0.1


@pytest.mark.slow
def test_false_alarms_are_rare():
    """On streams with as many errors as the source."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(30):
        monitor = RiskMonitor(classify, *sample(rng, 300, 2.0), tolerance=0.05, alpha=0.1)
        for _ in range(100):
            images, _ = sample(rng, 50, 2.0)
            monitor.follow(classify(images))
        alarms += monitor.alarm
    assert alarms <= 0.1 * 30


def test_an_increase_of_the_error_raises_an_alarm():
    rng = np.random.default_rng(0)
    monitor = RiskMonitor(classify, *sample(rng, 500, 4.0), tolerance=0.05)
    seen = []
    for number in range(100):
        images, labels = sample(rng, 64, 4.0 if number < 20 else 0.0)
        seen.append(classify(images).argmax(dim=1) != labels)
        if monitor.follow(classify(images)):
            break
    assert monitor.alarm_at == monitor.lower.count == 64 * len(seen)
    assert 20 < len(seen) < 80
    assert monitor.bound <= float(torch.cat(seen).double().mean())


def test_the_threshold_follows_the_confidence_of_the_model():
    """A model that becomes less confident, but not worse, raises no alarm."""
    rng = np.random.default_rng(0)
    scale = [1.0]

    def predict(images: Tensor) -> Tensor:
        return scale[0] * classify(images)

    monitor = RiskMonitor(predict, *sample(rng, 500, 4.0), calibrate_every=10)
    for _ in range(100):
        scale[0] *= 0.97
        monitor.follow(predict(sample(rng, 64, 4.0)[0]))
    assert not monitor.alarm


def test_a_resumed_monitor_goes_on_to_the_bit():
    rng = np.random.default_rng(0)
    labeled = sample(rng, 100, 2.0)
    whole = RiskMonitor(classify, *labeled, calibrate_every=3)
    batches = [classify(sample(rng, 20, 1.0)[0]) for _ in range(10)]
    for logits in batches[:4]:
        whole.follow(logits)
    resumed = RiskMonitor(classify, *labeled, calibrate_every=3)
    resumed.load_state_dict(whole.state_dict())
    for logits in batches[4:]:
        assert whole.follow(logits) == resumed.follow(logits)
    assert same(whole.state_dict(), resumed.state_dict())


def test_images_and_labels_must_belong_together():
    with pytest.raises(ValueError, match="3 images and 2 labels"):
        RiskMonitor(classify, torch.rand(3, 5, 1, 1), torch.zeros(2, dtype=torch.int64))
