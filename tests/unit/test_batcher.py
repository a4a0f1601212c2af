"""Requests share batches, and no stream notices."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dab.serve.batcher import Batcher, Request


class Recorder:
    """Answers with what it was shown; can be held back."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int]]] = []
        self.free = threading.Event()
        self.busy = threading.Event()
        self.free.set()

    def __call__(self, requests: Sequence[Request[int]]) -> list[int]:
        self.busy.set()
        self.free.wait()
        numbers = [int(request.images[0, 0]) for request in requests]
        self.batches.append([(r.stream, n) for r, n in zip(requests, numbers, strict=True)])
        if any(number < 0 for number in numbers):
            raise ValueError("negative")
        return numbers


def image(number: int, count: int = 1) -> torch.Tensor:
    return torch.full((count, 1), float(number))


def held(recorder: Recorder, **options: float) -> Batcher[int]:
    """A batcher whose thread is busy with a first request, until `recorder.free` is set."""
    batcher = Batcher(recorder, **{"largest": 4, "wait": 0.0, **options})
    recorder.free.clear()
    batcher.submit("first", image(0))
    recorder.busy.wait()
    return batcher


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=20), st.integers(1, 6)
)
def test_streams_keep_their_order_and_batches_their_size(arrivals, largest):
    recorder = Recorder()
    batcher = held(recorder, largest=largest)
    answers = [
        batcher.submit(stream, image(n, count)) for n, (stream, count) in enumerate(arrivals, 1)
    ]
    recorder.free.set()
    batcher.close()
    assert [answer.result() for answer in answers] == [*range(1, len(arrivals) + 1)]
    order = defaultdict(list)
    for batch in recorder.batches[1:]:
        assert len({stream for stream, _ in batch}) == len(batch)
        sizes = [arrivals[n - 1][1] for _, n in batch]
        assert sum(sizes) <= largest or len(batch) == 1
        for stream, number in batch:
            order[stream].append(number)
    assert all(numbers == sorted(numbers) for numbers in order.values())
    assert sum(map(len, order.values())) == len(arrivals)


def test_requests_that_wait_share_a_batch():
    recorder = Recorder()
    batcher = held(recorder)
    for n, stream in enumerate("abcab", 1):
        batcher.submit(stream, image(n))
    recorder.free.set()
    batcher.close()
    assert recorder.batches[1:] == [[("a", 1), ("b", 2), ("c", 3)], [("a", 4), ("b", 5)]]


def test_a_request_waits_for_others():
    recorder = Recorder()
    batcher = Batcher(recorder, largest=2, wait=3600.0)
    first = batcher.submit("a", image(1))
    assert not first.done()
    second = batcher.submit("b", image(2))  # now the batch is full
    assert (first.result(), second.result()) == (1, 2)
    assert recorder.batches == [[("a", 1), ("b", 2)]]
    batcher.close()


def test_a_request_fails_on_its_own_account_only():
    recorder = Recorder()
    batcher = held(recorder)
    answers = [batcher.submit(stream, image(n)) for stream, n in (("a", 1), ("b", -1), ("c", 3))]
    recorder.free.set()
    batcher.close()
    assert answers[0].result() == 1
    with pytest.raises(ValueError, match="negative"):
        answers[1].result()
    assert answers[2].result() == 3


def test_what_was_canceled_is_not_run():
    recorder = Recorder()
    batcher = held(recorder)
    gone, other = batcher.submit("a", image(1)), batcher.submit("b", image(2))
    assert gone.cancel()
    recorder.free.set()
    batcher.close()
    assert other.result() == 2
    with pytest.raises(CancelledError):
        gone.result()
    assert recorder.batches[1:] == [[("b", 2)]]


def test_errands_run_in_the_same_thread():
    recorder = Recorder()
    batcher = Batcher(recorder, largest=4, wait=0.0)
    assert batcher.call(lambda: threading.current_thread().name).result() == "dab-model"

    def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        batcher.call(fail).result()
    assert batcher.submit("a", image(1)).result() == 1  # the thread has survived
    batcher.close()


def test_a_closed_batcher_has_answered_everything_and_takes_nothing():
    batcher = Batcher(Recorder(), largest=4, wait=3600.0)
    answers = [batcher.submit("a", image(n)) for n in range(3)]
    batcher.close()  # without waiting for others
    assert [answer.result() for answer in answers] == [0, 1, 2]
    assert not batcher.alive
    with pytest.raises(RuntimeError, match="shutting down"):
        batcher.submit("a", image(1))
