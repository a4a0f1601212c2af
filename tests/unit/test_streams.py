"""Streams against lists of places; any start, any number of workers, any process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dab.data.corrupted_images import CorruptedImages
from dab.data.images import to_tensor
from dab.streams import Batch, Domain, Setting, Stream
from dab.testing import same
from tests.support.orders import (
    generator,
    global_draws,
    twin_by_track,
    twin_correlated,
    twin_dirichlet,
    twin_shuffled,
)
from tests.support.pictures import LABELS, Pictures
from tests.support.streams import corrupted_domains, corrupted_stream, digest

SHIFTS = ["continual", "reset_each_shift", "gradual", "drive", "mixed"]
ORDERS = [
    {},
    *({"correlated": True, "delta": delta} for delta in (None, 0.1, 1.0, 123.4567890123)),
    {"tracks": True},
]
SETTINGS = [Setting(shift, **order) for shift, order in product(SHIFTS, ORDERS)]
WINDOWS = [replace(setting, window=window) for setting in SETTINGS for window in (2, 16)]


# Settings


@pytest.mark.parametrize("setting", [*SETTINGS, *WINDOWS], ids=str)
def test_a_setting_is_read_as_it_is_written(setting):
    assert Setting.parse(str(setting)) == setting


@given(
    shift=st.sampled_from(SHIFTS), delta=st.floats(min_value=0, exclude_min=True, max_value=1e30)
)
def test_no_digit_of_delta_is_lost(shift, delta):
    setting = Setting(shift, True, delta)
    assert Setting.parse(str(setting)) == setting


def test_settings_have_names_of_their_own():
    assert len(set(map(str, SETTINGS + WINDOWS))) == len(SETTINGS + WINDOWS)
    assert [str(setting) for setting in SETTINGS if setting.shift in ("continual", "mixed")] == [
        *("continual", "correlated", "correlated:0.1", "correlated:1", "correlated:123.4567890123"),
        *("tracks", "mixed", "mixed+correlated", "mixed+correlated:0.1", "mixed+correlated:1"),
        *("mixed+correlated:123.4567890123", "mixed+tracks"),
    ]


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("continual+correlated", Setting("continual", True)),
        ("continual+correlated:2", Setting("continual", True, 2.0)),
        ("correlated:1e-2", Setting("continual", True, 0.01)),
        ("gradual+correlated:1e+2", Setting("gradual", True, 100.0)),
        ("continual+tracks", Setting(tracks=True)),
        ("continual+window:3", Setting(window=3)),
        ("mixed+correlated:1e+2+window:3", Setting("mixed", True, 100.0, 3)),
    ],
)
def test_a_setting_may_be_written_in_another_way(text, setting):
    assert Setting.parse(text) == setting


@pytest.mark.parametrize(
    "text",
    [
        *("", "+", ":", ":0.1", "Continual", "continual ", "sorted", "mixed,correlated"),
        *(
            "correlated+mixed",
            "correlated+correlated",
            "tracks+correlated",
            "drive+correlated+tracks",
        ),
        *("mixed+gradual", "mixed+correlated+gradual"),
        *("mixed+", "correlated+", "+correlated", "mixed+:0.1", "+:0.1", "mixed++correlated"),
        *("window:3", "+window:3", "mixed+window", "mixed+window:", "mixed+window:-1"),
        *("mixed+window:3+correlated", "mixed+window:3+window:3", "mixed+window:x"),
        *("correlated:", "correlated:much", "correlated:nan", "correlated:0.1:0.2", "mixed+corr"),
    ],
)
def test_an_unknown_setting_is_refused(text):
    with pytest.raises(ValueError, match=r"unknown setting .* available: continual, .*:DELTA"):
        Setting.parse(text)


@pytest.mark.parametrize("delta", ["0", "-1", "inf", "-inf", "1e999"])
def test_a_delta_is_positive(delta):
    with pytest.raises(ValueError, match="delta must be a positive number, got"):
        Setting.parse(f"correlated:{delta}")
    with pytest.raises(ValueError, match="delta must be a positive number, got"):
        Setting("mixed", True, float(delta))


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"delta=0\.1 requires a correlated setting"):
        Setting.parse("continual:0.1")
    with pytest.raises(ValueError, match=r"delta=0\.1 requires a correlated setting"):
        Setting(delta=0.1)
    with pytest.raises(ValueError, match=r"delta=0\.1 requires a correlated setting"):
        Setting.parse("tracks:0.1")
    with pytest.raises(ValueError, match="choose correlated or tracks"):
        Setting(correlated=True, tracks=True)
    for window in (0, 1):
        with pytest.raises(ValueError, match=f"window must be at least 2 images, got {window}"):
            Setting.parse(f"mixed+window:{window}")
    with pytest.raises(ValueError, match=r"shift must be one of .*'mixed'.*, got 'mxied'"):
        Setting("mxied")


# Arrangement


def twin_order(setting, labels, tracks, rng):
    if setting.tracks:
        return twin_by_track(tracks, rng)
    if not setting.correlated:
        return twin_shuffled(labels, rng)
    if setting.delta is None:
        return twin_correlated(labels, rng)
    return twin_dirichlet(labels, rng, setting.delta)


def twin_batches(domains, setting, seed, batch_size):
    """The places (domain, part, index) of the images in each batch."""
    parts = [
        [(domain, part, index) for index in range(len(images))]
        for domain, whole in enumerate(domains)
        for part, images in enumerate(whole.parts)
    ]

    def ordered(places, own_seed):
        labels = [int(domains[d].parts[p].labels[index]) for d, p, index in places]
        # A track is a video of its own in every part.
        tracks = [(d, p, int(domains[d].parts[p].tracks[index])) for d, p, index in places]
        return [places[n] for n in twin_order(setting, labels, tracks, generator(own_seed))]

    if setting.shift == "mixed":
        parts = [ordered([place for part in parts for place in part], seed)]
    elif setting.shift == "drive":
        order = [index for _, _, index in ordered(parts[0], seed)]
        rest = len(order)
        for number, part in enumerate(parts):
            size = -(-rest // (len(parts) - number))  # the longer ones first
            parts[number] = [part[index] for index in order[len(order) - rest :][:size]]
            rest -= size
    else:
        parts = [ordered(part, [seed, number]) for number, part in enumerate(parts)]
    return [
        part[start : start + batch_size]
        for part in parts
        for start in range(0, len(part), batch_size)
    ]


@st.composite
def some_domains(draw, setting):
    """Domains of any parts; for a drive, all with the same images in at least as many places."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    least = sum(counts) if setting.shift == "drive" else 1
    images = st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=least, max_size=least + 8
    )
    same = draw(images)
    domains = []
    for number, count in enumerate(counts):
        parts = []
        for part in range(count):
            labels, tracks = zip(*(same if setting.shift == "drive" else draw(images)), strict=True)
            parts.append(Pictures(labels, [number, part], (2, 3), tracks))
        domains.append(Domain(f"domain {number}", parts))
    return domains


@given(
    data=st.data(),
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 2**40),
    batch_size=st.integers(1, 12),
)
def test_batches_are_those_of_the_twin(data, setting, seed, batch_size):
    domains = data.draw(some_domains(setting))
    stream = Stream(domains, setting, seed, batch_size)
    expected = twin_batches(domains, setting, seed, batch_size)
    batches = list(stream)
    assert len(stream) == len(batches) == len(expected)
    assert stream.samples == sum(map(len, expected))
    assert stream.domains == tuple(domain.name for domain in domains)
    seen, before = 0, expected[0][0][0]
    for number, (batch, places) in enumerate(zip(batches, expected, strict=True)):
        assert batch.images.shape == (len(places), 3, 2, 3)
        assert (batch.images.dtype, batch.images.is_contiguous()) == (torch.float32, True)
        assert batch.labels.dtype == batch.domains.dtype == torch.int64
        rows = (tensor.tolist() for tensor in batch)
        for image, label, domain, (d, p, index) in zip(*rows, places, strict=True):
            part = domains[d].parts[p]
            assert (label, domain) == (part.labels[index], d)
            for row, column, channel in np.ndindex(2, 3, 3):
                level = part.images[index, row, column, channel]
                assert image[channel][row][column] == np.float32(level / 255)
        at = slice(seen, seen + len(places))
        assert stream.labels[at].tolist() == batch.labels.tolist()
        assert stream.domain[at].tolist() == batch.domains.tolist()
        assert stream.position(number) == seen
        seen += len(places)
        first = places[0][0]
        assert stream.is_shift(number) == (setting.shift != "mixed" and first != before)
        before = first
    assert stream.position(len(stream)) == seen
    places = [place for batch in expected for place in batch]
    shown = [(domains[d].parts[p].tracks[index], d, p) for d, p, index in places]
    if setting.shift == "drive":  # whatever it meets, a track is one video
        shown = [track for track, _, _ in shown]
        assert len(places) == len(domains[0].parts[0])
    firsts = [shown.index(track) for track in shown]
    numbers = stream.tracks.tolist()
    assert [numbers.index(number) for number in numbers] == firsts


def test_a_drive_by_eye():
    """Four tracks of three images, through clean images and two severities of fog."""
    tracks = [4, 4, 4, 5, 5, 5, 8, 8, 8, 9, 9, 9]
    parts = [Pictures(range(12), key, tracks=tracks) for key in range(3)]
    stream = Stream([Domain("fog", parts)], Setting.parse("drive+tracks"), 3, batch_size=3)
    assert [batch.labels.tolist() for batch in stream] == [
        *([9, 10, 11], [6]),
        *([7, 8, 3], [4]),
        *([5, 0, 1], [2]),
    ]
    assert [part.read for part in parts] == [[9, 10, 11, 6], [7, 8, 3, 4], [5, 0, 1, 2]]


def test_a_drive_needs_the_same_images_everywhere_and_enough_of_them():
    a, b = Domain("a", [Pictures([1, 2])]), Domain("b", [Pictures([1, 3])])
    with pytest.raises(ValueError, match="setting drive needs the same images in all domains"):
        Stream([a, b], Setting("drive"))
    with pytest.raises(ValueError, match="into 3 parts, but there are only 2 images"):
        Stream([a, a, a], Setting("drive"))


@pytest.mark.parametrize("setting", ["tracks", "drive+tracks", "mixed+tracks"])
def test_images_without_tracks_have_no_order_of_tracks(setting):
    domains = [Domain("a", [Pictures([1, 2])])]
    with pytest.raises(ValueError, match=r"the setting .*tracks is for videos: these images have"):
        Stream(domains, Setting.parse(setting))


def twin_windows(batches, window, within_domain):
    """What is shown with each batch: as many earlier images as fit, and the batch itself."""
    shown, earlier = [], []
    for batch in batches:
        again = []
        for place in reversed(earlier):
            other_domain = place[0] != batch[0][0]
            if len(again) + len(batch) == window or (within_domain and other_domain):
                break
            again.insert(0, place)
        shown.append(again + batch)
        earlier += batch
    return shown


@given(
    setting=st.sampled_from(SETTINGS),
    seed=st.integers(0, 2**40),
    batch_size=st.integers(1, 4),
    window=st.integers(4, 20),
    data=st.data(),
)
def test_windows_are_those_of_the_twin(setting, seed, batch_size, window, data):
    domains = data.draw(some_domains(setting))
    stream = Stream(domains, replace(setting, window=window), seed, batch_size)
    new = twin_batches(domains, setting, seed, batch_size)
    expected = twin_windows(new, window, setting.shift == "reset_each_shift")
    start = data.draw(st.integers(0, len(new)))
    batches = list(stream.batches(start))
    assert len(batches) == len(stream) - start
    for batch, places in zip(batches, expected[start:], strict=True):
        parts = [(domains[d].parts[p], index) for d, p, index in places]
        pixels = np.stack([part.images[index] for part, index in parts])
        assert torch.equal(batch.images, to_tensor(pixels))
        assert batch.labels.tolist() == [part.labels[index] for part, index in parts]
        assert batch.domains.tolist() == [d for d, _, _ in places]
    sizes = [stream.position(number + 1) - stream.position(number) for number in range(len(new))]
    assert sizes == [len(places) for places in new]


def test_a_window_of_single_images():
    """By eye: two domains of four images, one new image per batch, three at once."""
    domains = [Domain("a", [Pictures(range(4))]), Domain("b", [Pictures(range(4, 8))])]
    shown = {
        shift: [
            batch.labels.tolist()
            for batch in Stream(domains, Setting(shift, True, window=3), batch_size=1)
        ]
        for shift in ("continual", "reset_each_shift")
    }
    assert shown["continual"] == [
        *([0], [0, 1], [0, 1, 2], [1, 2, 3]),
        *([2, 3, 4], [3, 4, 5], [4, 5, 6], [5, 6, 7]),
    ]
    assert shown["reset_each_shift"] == [
        *([0], [0, 1], [0, 1, 2], [1, 2, 3]),
        *([4], [4, 5], [4, 5, 6], [5, 6, 7]),
    ]


def test_a_window_reads_every_image_once():
    setting = Setting.parse("correlated:0.5+window:40")
    pictures = Pictures(LABELS)
    stream = Stream([Domain("a", [pictures])], setting, batch_size=16)
    assert len(list(stream)) == 4
    assert sorted(pictures.read) == list(range(60))


def test_a_stream_shows_what_its_setting_says():
    """By eye, without the twin: 3 domains, the second in two parts, batches of 4."""
    labels = [[0, 1] * 5, [0, 1] * 3, [2, 3] * 2, [0, 1] * 5]
    a, b, c, d = (Pictures(part, key) for key, part in enumerate(labels))
    domains = [Domain("a", [a]), Domain("b", [b, c]), Domain("c", [d])]
    stream = Stream(domains, Setting.parse("reset_each_shift+correlated"), batch_size=4)
    assert [(batch.labels.tolist(), batch.domains.tolist()) for batch in stream] == [
        *(([0, 0, 0, 0], [0] * 4), ([0, 1, 1, 1], [0] * 4), ([1, 1], [0] * 2)),
        *(([0, 0, 0, 1], [1] * 4), ([1, 1], [1] * 2), ([2, 2, 3, 3], [1] * 4)),
        *(([0, 0, 0, 0], [2] * 4), ([0, 1, 1, 1], [2] * 4), ([1, 1], [2] * 2)),
    ]
    assert [number for number in range(len(stream)) if stream.is_shift(number)] == [3, 6]
    mixed = Stream(domains, Setting.parse("mixed+correlated"), batch_size=4)
    assert [len(batch.labels) for batch in mixed] == [4] * 7 + [2]
    assert mixed.labels.tolist() == [0] * 13 + [1] * 13 + [2] * 2 + [3] * 2
    assert len(set(mixed.domain[:13].tolist())) == 3


def test_seeds_and_domains_have_orders_of_their_own():
    domain = Domain("a", [Pictures(range(50))])
    streams = [Stream([domain, domain], Setting(), seed, 50).labels for seed in (0, 1)]
    orders = [tuple(order) for stream in streams for order in stream.reshape(2, 50).tolist()]
    assert len(set(orders)) == 4


def test_wrong_arguments_are_refused():
    good = Domain("good", [Pictures([0, 1])])
    with pytest.raises(ValueError, match="a stream needs at least one domain"):
        Stream([], Setting())
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        Stream([good], Setting(), batch_size=0)
    with pytest.raises(ValueError, match="batch_size=4 exceeds the window of 3"):
        Stream([good], Setting(window=3), batch_size=4)
    for parts in ([], [Pictures([0]), Pictures([])]):
        with pytest.raises(ValueError, match="domain 'bad' must have images in every part"):
            Stream([good, Domain("bad", parts)], Setting())
    for start in (-1, 3):
        stream = Stream([good], Setting(), batch_size=1)
        with pytest.raises(
            ValueError, match=f"cannot start at batch {start}: the stream has 2 batches"
        ):
            next(stream.batches(start))


# Reading


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """A folder with all images, and the batches of a stream of them."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, list(corrupted_stream(folder))


def test_there_are_whole_and_short_batches(cached):
    assert [len(batch.labels) for batch in cached[1]] == [16] * 11 + [4]


@pytest.mark.parametrize("start", range(13))
def test_a_stream_starts_anywhere(cached, start):
    folder, batches = cached
    assert same(list(corrupted_stream(folder).batches(start)), batches[start:])


@pytest.mark.parametrize("start", [0, 5, 12])
def test_workers_change_no_bit(cached, start):
    folder, batches = cached
    assert same(list(corrupted_stream(folder).batches(start, workers=2)), batches[start:])


def test_workers_fill_the_cache_and_lose_nothing(cached, tmp_path):
    for number in range(6):  # all depends on who is first
        clean = Pictures(LABELS)
        stream = corrupted_stream(tmp_path / str(number), clean=clean)
        assert not stream.ready
        assert same(list(stream.batches(workers=2)), cached[1])
        again = corrupted_stream(tmp_path / str(number), clean=clean)
        assert again.ready
        clean.read.clear()
        assert same(list(again), cached[1])
        assert clean.read == []


def test_streams_do_not_disturb_each_other(cached):
    folder, batches = cached
    stream = corrupted_stream(folder)
    pairs = list(zip(stream.batches(), stream.batches(1, workers=1), strict=False))
    assert same([first for first, _ in pairs], batches[: len(pairs)])
    assert same([second for _, second in pairs], batches[1:])


def test_changing_a_batch_does_not_change_the_stream(cached):
    folder, batches = cached
    stream = corrupted_stream(folder)
    for images, labels, domains in stream:
        images.zero_()
        labels.zero_()
        domains.zero_()
    assert same(list(stream), batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_global_generators_are_neither_read_nor_moved(cached, workers):
    folder, batches = cached
    torch.manual_seed(workers)
    before = global_draws()
    assert same(list(corrupted_stream(folder).batches(workers=workers)), batches)
    assert global_draws() == before


def test_workers_end_with_the_reading(cached):
    reading = corrupted_stream(cached[0]).batches(workers=2)
    next(reading)
    assert len(multiprocessing.active_children()) == 2
    del reading
    assert multiprocessing.active_children() == []


def test_workers_leave_interrupts_to_the_parent(cached):
    domains = corrupted_domains(cached[0], Pictures(LABELS))
    stream = Stream(domains, Setting(), batch_size=1)  # more batches than are read ahead
    reading = stream.batches(workers=2)
    first = [next(reading), next(reading)]  # one of each worker
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, signal.SIGINT)
    assert same([*first, *reading], list(stream))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_cache_is_named(tmp_path, workers):
    list(corrupted_stream(tmp_path))
    (damaged,) = tmp_path.glob("gaussian_noise-5-*/images.npy")
    damaged.write_bytes(b"damage" * 10000)
    with pytest.raises(ValueError, match="remove it") as caught:
        list(corrupted_stream(tmp_path).batches(workers=workers))
    assert str(caught.value) == f"{damaged} is not an array of (60, 16, 18, 3) uint8: remove it"


def test_a_pickled_stream_goes_on_elsewhere(cached):
    folder, batches = cached
    stream = corrupted_stream(folder)
    next(iter(stream))
    content = pickle.dumps(stream)
    assert same(list(pickle.loads(content)), batches)


# What a seed shows, which is to stay as it is for ever.
SHA256 = {
    "continual": "ab8d0555d2016a22dbc9d552ec9d66a06ed900dd43c1ebe9c9e0fe3426d22006",
    "correlated": "4eae63d2da474574ed9d0f60970edb8580bd223e9efb963103f9d4ebb12989e4",
    "correlated:0.1": "9cd0b3f8bd9194e9388f09ef1c3305803c7de6935c2b0ccbe7e0b3e3d96c3cf0",
    "mixed": "585a078986dc4fe1075cb1eebb3990312c04ce4e50db4f20115bd0ffd4c83123",
    "mixed+correlated": "9ffa76b8a54fd6643203187de5c15fe8ddf8e794d437281ed249e8fb1a552100",
    "mixed+correlated:0.1": "c3feb76d817c3ba79cf447c0b045dc40862c8dd36aa1bc160ac82c56087562e0",
}


@pytest.mark.parametrize("setting", SHA256)
def test_the_stream_of_a_seed_is_the_same_everywhere(setting):
    a, b, c, d = (Pictures(np.arange(40 + key) % 7, key, (1, 1)) for key in range(4))
    domains = [Domain("a", [a]), Domain("b", [b, c]), Domain("c", [d])]
    stream = Stream(domains, Setting.parse(setting), seed=5, batch_size=16)
    assert digest(stream) == SHA256[setting]


# Identity


def test_a_streams_fingerprint_shows_its_images_and_nothing_else(tmp_path):
    first = corrupted_stream(tmp_path).fingerprint
    assert corrupted_stream(tmp_path / "elsewhere", "continual", seed=4).fingerprint == first
    domains = corrupted_domains(tmp_path, Pictures(LABELS))
    others = [domains[:1], domains[::-1]]
    other_clean = Pictures(LABELS)
    other_clean.images[-1, -1, -1, -1] ^= 1
    others += [
        [domains[0], Domain("pixelate", [CorruptedImages(other_clean, "pixelate", 3, tmp_path)])]
    ]
    found = {Stream(other, Setting()).fingerprint for other in others}
    assert len(found | {first}) == 4


def test_a_stream_is_ready_when_all_its_parts_are(tmp_path):
    clean = Pictures(LABELS)
    fog, snow = (CorruptedImages(clean, name, 1, tmp_path) for name in ("fog", "snow"))
    stream = Stream([Domain("clean", [clean]), Domain("both", [fog, snow])], Setting())
    assert not stream.ready
    fog.batch(range(60))
    assert not stream.ready
    snow.batch(range(59))
    assert not stream.ready
    snow.batch([59])
    assert stream.ready
    assert Stream([Domain("clean", [clean])], Setting()).ready


def test_batches_have_names():
    batch = next(iter(Stream([Domain("a", [Pictures([4])])], Setting())))
    assert isinstance(batch, Batch)
    assert batch.images is batch[0]
    assert (batch.labels.tolist(), batch.domains.tolist()) == ([4], [0])
