"""CSTU against a memory of lists, written as RoTTA describes it."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dab.buffers import Buffer, CSTUPolicy, ImageStorage, Placement
from dab.testing import same
from tests.support.buffers import SlowCSTU

Sample = tuple[int, float]  # pseudo-label and uncertainty


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, list[Sample]]:
    """Capacity, classes and samples, some of which come many times over.

    So items grow older than the sigmoid can tell, and with few levels of uncertainty they tie.
    """
    M, C = draw(st.integers(1, 14)), draw(st.integers(2, 8))
    level = st.sampled_from([0.0, math.log(C) / 2, math.log(C)]) | st.floats(0, math.log(C))
    times = st.just(1) | st.integers(1, 40 * M)
    runs = draw(st.lists(st.tuples(st.integers(0, C - 1), level, times), max_size=60))
    samples = [(label, U) for label, U, count in runs for _ in range(count)]
    return M, C, samples[:2000]


def assert_same(policy: CSTUPolicy, twin: SlowCSTU) -> None:
    assert len(policy) == len(twin.items())
    assert policy.labels == [item.label for item in twin.by_slot()]
    assert policy.ages == [item.age for item in twin.by_slot()]


@settings(max_examples=150, deadline=None)
@given(streams())
def test_decides_as_the_twin(stream: tuple[int, int, list[Sample]]) -> None:
    M, C, samples = stream
    policy, twin = CSTUPolicy(M, C), SlowCSTU(M, C)
    for sample in samples:
        assert policy.place(*sample) == twin.place(*sample)
    assert_same(policy, twin)


def random_stream(C: int, length: int, ordered: bool) -> list[Sample]:
    rng = random.Random(C)
    labels = [rng.randrange(C) for _ in range(length)]
    return [(k, rng.uniform(0, math.log(C))) for k in (sorted(labels) if ordered else labels)]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("M", "C"), [(64, 10), (64, 100), (50, 3), (40, 2)])
def test_decides_as_the_twin_at_the_size_of_the_paper(M: int, C: int, ordered: bool) -> None:
    policy, twin = CSTUPolicy(M, C), SlowCSTU(M, C)
    for sample in random_stream(C, 3000, ordered):
        assert policy.place(*sample) == twin.place(*sample)
        assert_same(policy, twin)


def aged(M: int, C: int, labels: list[int]) -> CSTUPolicy:
    """A policy that holds certain items so old that all of them score exactly 1."""
    policy = CSTUPolicy(M, C)
    for label in labels:
        policy.place(label, 0.0)
    for _ in range(37 * M):
        assert policy.place(labels[0], math.log(C)) is None  # too uncertain to come in
    return policy


def test_of_equals_in_its_own_class_the_last_inserted_goes() -> None:
    policy = aged(M=6, C=2, labels=[1, 1, 1, 0, 0, 0])
    assert policy.place(1, 0.0) == Placement(2, 1)


def test_equals_keep_their_order_when_one_of_them_goes() -> None:
    policy = CSTUPolicy(capacity=8, classes=2)
    for uncertainty in (0.0, 0.0, 0.0, 0.2):
        policy.place(0, uncertainty)
    for _ in range(37 * 8):
        policy.place(0, math.log(2))
    # The uncertain one goes first, then the certain ones from the last to the first.
    assert [policy.place(0, 0.0) for _ in range(4)] == [Placement(slot, 0) for slot in (3, 2, 1, 0)]


def test_equals_keep_their_order_in_a_state() -> None:
    policy = CSTUPolicy(capacity=6, classes=2)
    policy.load_state_dict(aged(M=6, C=2, labels=[1, 1, 1, 0, 0, 0]).state_dict())
    assert policy.place(1, 0.0) == Placement(2, 1)


def test_of_equals_in_all_largest_classes_the_last_of_the_last_class_goes() -> None:
    policy = aged(M=4, C=3, labels=[1, 1, 0, 0])
    assert policy.place(2, 0.0) == Placement(1, 1)


def test_a_newcomer_that_scores_no_lower_is_turned_away_and_all_still_age() -> None:
    policy = CSTUPolicy(capacity=2, classes=2)
    policy.place(0, 0.0)
    assert policy.place(0, math.log(2)) is None
    assert policy.ages == [2]


def test_a_class_with_its_share_leaves_free_slots_to_others() -> None:
    policy = CSTUPolicy(capacity=10, classes=4)  # a share of 2.5: the third is the last to come in
    for _ in range(50):
        policy.place(3, 0.1)
    assert policy.labels == [3, 3, 3]


def test_images_lie_in_the_slots_that_the_policy_names() -> None:
    M, C = 12, 5
    samples = random_stream(C, 300, ordered=False)
    buffer, twin = Buffer(CSTUPolicy(M, C), ImageStorage(M, "native")), SlowCSTU(M, C)
    images = torch.arange(300.0).view(300, 1, 1, 1).expand(-1, 1, 2, 2)
    kept: dict[int, int] = {}
    for start in range(0, 300, 50):
        batch = samples[start : start + 50]
        labels, uncertainties = zip(*batch, strict=True)
        buffer.insert(images[start : start + 50], labels, uncertainties)
        for number, sample in enumerate(batch, start):
            placement = twin.place(*sample)
            if placement is not None:
                kept[placement.slot] = number
    read = buffer.read(torch.arange(M))[:, 0, 0, 0]
    assert read.tolist() == [kept[slot] for slot in range(M)]


@settings(max_examples=60, deadline=None)
@given(streams(), st.floats(0, 1))
def test_goes_on_from_a_state_as_if_never_interrupted(
    stream: tuple[int, int, list[Sample]], share: float
) -> None:
    M, C, samples = stream
    cut = int(share * len(samples))
    policy, resumed = CSTUPolicy(M, C), CSTUPolicy(M, C)
    for sample in samples[:cut]:
        policy.place(*sample)
    for sample in samples[cut:]:
        resumed.place(*sample)  # a past that loading has to forget
    state = policy.state_dict()
    placements = [policy.place(*sample) for sample in samples[cut:]]
    resumed.load_state_dict(state)
    assert [resumed.place(*sample) for sample in samples[cut:]] == placements
    assert same(resumed.state_dict(), policy.state_dict())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"labels": [0, 1]}, "2 labels, 3 ages and 3 uncertainties"),
        ({"ages": [1]}, "3 labels, 1 ages"),
        ({"uncertainties": []}, "0 uncertainties"),
        (
            {"labels": [0, 1, 2] * 2, "ages": [*range(1, 7)], "uncertainties": [0.0] * 6},
            "does not fit a buffer of 4",
        ),
        ({"labels": [0, 1, 3]}, "outside of 3 classes"),
        ({"labels": [0, 1, -1]}, "outside of 3 classes"),
        ({"labels": [1, 1, 1]}, "a class with more than 2 items"),
        ({"ages": [3, 2, 2]}, "ages"),
        ({"ages": [2, 1, 0]}, "ages"),
        ({"uncertainties": [0.1, 0.2, math.nan]}, "finite"),
        ({"uncertainties": [0.1, 0.2, math.inf]}, "finite"),
    ],
)
def test_refuses_a_state_that_cannot_be_and_keeps_its_own(
    change: dict[str, list[float]], complaint: str
) -> None:
    policy = CSTUPolicy(capacity=4, classes=3)
    for label in (0, 1, 2):
        policy.place(label, 0.5)
    before = policy.state_dict()
    bad = {**before, **{name: torch.tensor(values) for name, values in change.items()}}
    with pytest.raises(ValueError, match=complaint):
        policy.load_state_dict(bad)
    assert same(policy.state_dict(), before)


@pytest.mark.parametrize(("M", "C"), [(0, 10), (64, 1)])
def test_refuses_sizes_for_which_no_score_exists(M: int, C: int) -> None:
    with pytest.raises(ValueError, match=f"got {min(M, C)}"):
        CSTUPolicy(M, C)
