"""PBRS against a list of labels and the same draws, and against the probabilities of NOTE."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dab.buffers import PBRSPolicy, Placement
from dab.testing import same
from tests.support.buffers import SlowPBRS, generator


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    M, C = draw(st.integers(1, 14)), draw(st.integers(1, 8))
    runs = st.lists(st.tuples(st.integers(0, C - 1), st.just(1) | st.integers(1, 40)), max_size=40)
    return M, C, [label for label, count in draw(runs) for _ in range(count)]


@settings(max_examples=150, deadline=None)
@given(streams(), st.integers(0, 2**32))
def test_decides_as_the_twin(stream: tuple[int, int, list[int]], seed: int) -> None:
    M, C, labels = stream
    policy, twin = PBRSPolicy(M, C, generator(seed)), SlowPBRS(M, C, seed)
    for label in labels:
        assert policy.place(label) == twin.place(label)
        assert policy.labels == twin.labels
    assert len(policy) == len(twin.labels)
    assert torch.equal(policy.generator.get_state(), twin.generator.get_state())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("M", "C"), [(64, 10), (64, 100)])
def test_decides_as_the_twin_at_the_size_of_the_paper(M: int, C: int, ordered: bool) -> None:
    rng = random.Random(0)
    labels = [rng.randrange(C) for _ in range(2000)]
    policy, twin = PBRSPolicy(M, C, generator(1)), SlowPBRS(M, C, 1)
    for label in sorted(labels) if ordered else labels:
        assert policy.place(label) == twin.place(label)
    assert policy.labels == twin.labels


def outcomes(labels: list[int], seen: list[int], newcomer: int, trials: int) -> Counter[int | None]:
    """How often which slot of this memory makes room for a newcomer (None: it is turned away)."""
    policy = PBRSPolicy(len(labels), len(seen), generator(0))
    state = {"labels": torch.tensor(labels), "seen": torch.tensor(seen)}
    slots: Counter[int | None] = Counter()
    for _ in range(trials):
        policy.load_state_dict(state)
        placement = policy.place(newcomer)
        slots[None if placement is None else placement.slot] += 1
    return slots


@pytest.mark.parametrize(
    ("newcomer", "probabilities"),
    [
        # m = 3, 3, 1 and n = 5, 11, 4 with the newcomer.
        pytest.param(
            0, {0: 1 / 5, 2: 1 / 5, 4: 1 / 5, None: 2 / 5}, id="replaces its own with m/n = 3/5"
        ),
        pytest.param(
            1, {1: 1 / 11, 3: 1 / 11, 5: 1 / 11, None: 8 / 11}, id="replaces its own with 3/11"
        ),
        pytest.param(2, dict.fromkeys(range(6), 1 / 6), id="any item of any largest class"),
    ],
)
def test_probabilities_are_those_of_the_paper(
    newcomer: int, probabilities: dict[int | None, float]
) -> None:
    trials = 6000
    found = outcomes([0, 1, 0, 1, 0, 1, 2], [4, 10, 3], newcomer, trials)
    assert found.keys() == probabilities.keys()
    for slot, p in probabilities.items():
        assert abs(found[slot] - trials * p) < 4 * (trials * p * (1 - p)) ** 0.5


def test_every_sample_of_a_class_is_as_likely_to_be_kept() -> None:
    M, length, trials = 4, 12, 1500
    shared = generator(0)
    kept: Counter[int] = Counter()
    for _ in range(trials):
        policy = PBRSPolicy(M, 2, shared)
        memory: dict[int, int] = {}
        for number in range(length):
            placement = policy.place(0)
            if placement is not None:
                memory[placement.slot] = number
        kept.update(memory.values())
    p = M / length
    for number in range(length):
        assert abs(kept[number] - trials * p) < 4 * (trials * p * (1 - p)) ** 0.5


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    def run() -> list[Placement | None]:
        policy = PBRSPolicy(3, 2, generator(0))
        return [policy.place(number % 2) for number in range(40)]

    before = torch.get_rng_state()
    first = run()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        assert run() == first


@settings(max_examples=60, deadline=None)
@given(streams(), st.floats(0, 1))
def test_goes_on_from_a_state_as_if_never_interrupted(
    stream: tuple[int, int, list[int]], share: float
) -> None:
    M, C, labels = stream
    cut = int(share * len(labels))
    policy, resumed = PBRSPolicy(M, C, generator(1)), PBRSPolicy(M, C, generator(2))
    for label in labels[:cut]:
        policy.place(label)
    for label in labels[cut:]:
        resumed.place(label)  # a past that loading has to forget
    state, draws = policy.state_dict(), policy.generator.get_state()
    placements = [policy.place(label) for label in labels[cut:]]
    resumed.load_state_dict(state)
    resumed.generator.set_state(draws)
    assert [resumed.place(label) for label in labels[cut:]] == placements
    assert same(resumed.state_dict(), policy.state_dict())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"seen": [2, 1]}, "has 2 classes, expected 3"),
        ({"labels": [0, 0, 3]}, "outside of 3 classes"),
        ({"labels": [0, 0, -1]}, "outside of 3 classes"),
        ({"labels": [0, 0]}, "holds 2 samples of 3 seen"),
        ({"labels": [0, 0, 1, 1, 1], "seen": [2, 3, 0]}, "does not fit a buffer of 4"),
        ({"labels": [0, 1, 1]}, "holds 3 samples of 3 seen"),
    ],
)
def test_refuses_a_state_that_cannot_be_and_keeps_its_own(
    change: dict[str, list[int]], complaint: str
) -> None:
    policy = PBRSPolicy(4, 3, generator(0))
    for label in (0, 0, 1):
        policy.place(label)
    before = policy.state_dict()
    bad = {**before, **{name: torch.tensor(values) for name, values in change.items()}}
    with pytest.raises(ValueError, match=complaint):
        policy.load_state_dict(bad)
    assert same(policy.state_dict(), before)
