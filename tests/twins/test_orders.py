"""Orders of images against loops over lists with the same draws."""

from __future__ import annotations

import hashlib
import math
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dab.streams import by_track, correlated, dirichlet, shuffled
from tests.support.orders import (
    generator,
    global_draws,
    twin_by_track,
    twin_correlated,
    twin_dirichlet,
    twin_shuffled,
)

# Of any length, with classes that are missing or rare, and far more classes than images.
some_labels = st.lists(st.integers(0, 5), min_size=1, max_size=60) | st.lists(
    st.integers(0, 999), min_size=1, max_size=20
)
seeds = st.integers(0, 2**40)
deltas = st.floats(1e-6, 1e6)


def runs(labels: np.ndarray) -> list[int]:
    """The lengths of the runs of one class."""
    return [len(list(run)) for _, run in groupby(labels.tolist())]


@given(labels=some_labels, seed=seeds)
def test_shuffled_is_the_generators_own_permutation(labels, seed):
    order = shuffled(np.array(labels), generator(seed))
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(labels)))
    assert order.tolist() == twin_shuffled(labels, generator(seed))


@given(labels=some_labels, seed=seeds)
def test_correlated_is_the_shuffle_sorted_stably(labels, seed):
    order = correlated(np.array(labels), generator(seed))
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(labels)))
    assert order.tolist() == twin_correlated(labels, generator(seed))
    shuffle = twin_shuffled(labels, generator(seed))
    for before, after in pairwise(order.tolist()):
        assert labels[before] <= labels[after]
        if labels[before] == labels[after]:
            assert shuffle.index(before) < shuffle.index(after)


@given(labels=some_labels, seed=seeds, delta=deltas)
@example(labels=[3], seed=0, delta=0.1)
@example(labels=[3] * 10, seed=0, delta=0.1)
@example(labels=list(range(20)), seed=0, delta=1.0)
def test_dirichlet_is_its_twin(labels, seed, delta):
    order = dirichlet(np.array(labels), generator(seed), delta)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(labels)))
    assert order.tolist() == twin_dirichlet(labels, generator(seed), delta)


@given(tracks=some_labels, seed=seeds)
def test_tracks_are_shuffled_and_their_images_are_not(tracks, seed):
    order = by_track(np.array(tracks), generator(seed))
    assert order.dtype == np.int64
    assert order.tolist() == twin_by_track(tracks, generator(seed))
    shown = [tracks[image] for image in order.tolist()]
    assert len(runs(np.array(shown))) == len(set(tracks))
    for before, after in pairwise(order.tolist()):
        assert tracks[before] != tracks[after] or before < after


LABELS = np.arange(2000) % 20


@pytest.mark.parametrize("seed", range(5))
def test_a_small_delta_leaves_nearly_one_run_for_each_class(seed):
    assert len(runs(LABELS[dirichlet(LABELS, generator(seed), 1e-7)])) == 20
    assert len(runs(LABELS[dirichlet(LABELS, generator(seed), 1e-3)])) <= 24
    assert len(runs(LABELS[shuffled(LABELS, generator(seed))])) > 1800


@pytest.mark.parametrize("seed", range(5))
def test_classes_do_not_come_in_ascending_order_there(seed):
    order = dirichlet(LABELS, generator(seed), 1e-7)
    assert not np.array_equal(LABELS[order], np.sort(LABELS))


@pytest.mark.parametrize("seed", range(5))
def test_a_large_delta_gives_every_class_its_even_share_of_every_slot(seed):
    order = dirichlet(LABELS, generator(seed), 1e8)
    for slot in LABELS[order].reshape(20, 100):
        assert np.bincount(slot, minlength=20).tolist() == [5] * 20
        assert runs(slot) == [5] * 20


def test_the_smaller_delta_the_longer_the_runs():
    counts = [
        sum(len(runs(LABELS[dirichlet(LABELS, generator(seed), delta)])) for seed in range(5))
        for delta in (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    ]
    assert counts == sorted(counts)
    assert len(set(counts)) == len(counts)


@pytest.mark.parametrize("delta", [0.0, -0.1, math.nan, math.inf, -math.inf])
def test_a_delta_that_no_distribution_has_is_refused(delta):
    with pytest.raises(ValueError, match=f"delta must be a positive number, got {delta}"):
        dirichlet(LABELS, generator(0), delta)


ORDERS = {
    "shuffled": shuffled,
    "correlated": correlated,
    "dirichlet": lambda labels, rng: dirichlet(labels, rng, 0.1),
    "by_track": by_track,
}

# A stream of one seed must be the same stream everywhere, or published figures mean nothing.
SHA256 = {
    "shuffled": "9c724099d3528ad7a9eed9c5c9a2299f38d62b28cb49da64ab236067aa83e322",
    "correlated": "206c1f164d707d78b043a5a5525883c899efbc7adcf234f38edbf3abf1db816a",
    "dirichlet": "a0ed2f08e7552721c42bc35f074711073eb49251802c8603bda3fa04d2827c53",
    "by_track": "dbcbb5be09ffd4d20c3ea7ad18d640c586f12274294f8c227bb47ddb45dcf650",
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_a_seed_is_the_same_everywhere(name):
    order = ORDERS[name](LABELS, generator([7, 3]))
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_follows_from_labels_and_generator_alone(name):
    labels = LABELS.copy()
    before = global_draws()
    first = ORDERS[name](labels, generator(1))
    assert np.array_equal(labels, LABELS)
    assert global_draws() == before
    np.random.get_bit_generator().random_raw()
    assert global_draws() != before
    assert np.array_equal(ORDERS[name](labels, generator(1)), first)
    assert not np.array_equal(ORDERS[name](labels, generator(2)), first)
