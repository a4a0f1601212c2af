"""The buffer against slow twins: who comes in, who goes, and what is kept of the pixels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dab.buffers import BalancedPolicy, Buffer, ImageStorage, Trigger
from tests.support.buffers import SlowBalanced


@given(st.data(), st.integers(1, 12), st.integers(2, 9))
def test_placements_equal_the_twin(data, capacity, classes):
    labels = data.draw(st.lists(st.integers(0, classes - 1), max_size=60))
    policy, twin = BalancedPolicy(capacity, classes), SlowBalanced(capacity)
    for number, label in enumerate(labels):
        if number == len(labels) // 2:  # a state taken in the middle goes on the same way
            state, policy = policy.state_dict(), BalancedPolicy(capacity, classes)
            policy.load_state_dict(state)
        assert policy.place(label) == twin.place(label)
        assert [list(item) for item in zip(policy.labels, policy.order, strict=True)] == twin.items


def test_classes_end_up_balanced_on_a_sorted_stream():
    policy = BalancedPolicy(capacity=20, classes=10)
    for label in range(10):
        for _ in range(100):
            policy.place(label)
    counts = [policy.labels.count(label) for label in range(10)]
    # The newcomer always gets in: the last class may stand one above its share for an older one.
    assert sorted(counts) in ([2] * 10, [1] + [2] * 8 + [3])


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"labels": [0, 1], "order": [0], "insertions": 2}, "2 samples"),
        ({"labels": [0, 1], "order": [0, 1], "insertions": 5}, "2 samples after 5 insertions"),
        ({"labels": [0, 7], "order": [0, 1], "insertions": 2}, "outside of 4 classes"),
    ],
)
def test_a_policy_refuses_states_of_others(state, reason):
    state = {key: torch.tensor(v) if isinstance(v, list) else v for key, v in state.items()}
    with pytest.raises(ValueError, match=reason):
        BalancedPolicy(capacity=3, classes=4).load_state_dict(state)


@given(
    st.sampled_from(["outgoing", "incoming", "any"]),
    st.integers(1, 40),
    st.integers(2, 30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29))),
)
def test_trigger_equals_the_twin(kind, N, C, replacements):
    trigger = Trigger(kind, batch_size=N, classes=C)
    # min(N/4, max(1, C/2)) rounded down, and never less than one; "any" counts no classes.
    threshold = max(1, N // 4 if kind == "any" else int(min(N / 4, max(1, C / 2))))
    seen: list[int] = []
    for incoming, outgoing in replacements:
        trigger.count(incoming % C, outgoing % C)
        seen.append({"incoming": incoming % C, "outgoing": outgoing % C, "any": len(seen)}[kind])
        distinct = []
        for item in seen:
            if item not in distinct:
                distinct.append(item)
        assert trigger.due == (len(distinct) >= threshold)
        if trigger.due:
            trigger.clear()
            seen = []
            assert not trigger.due


@given(st.data(), st.integers(1, 6), st.integers(1, 5))
def test_a_buffer_holds_the_images_its_policy_says(data, capacity, classes):
    classes += 1
    buffer = Buffer(BalancedPolicy(capacity, classes), ImageStorage(capacity))
    twin, held = SlowBalanced(capacity), {}
    number = 0
    for n in data.draw(st.lists(st.integers(0, 9), max_size=6)):
        labels = data.draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
        images = (torch.arange(number, number + n) % 256).view(n, 1, 1, 1).expand(n, 1, 2, 2) / 255
        buffer.insert(images, labels)
        for label, image in zip(labels, images, strict=True):
            held[twin.place(label)[0]] = image
        number += n
        assert len(buffer) == len(held)
        if held:
            slots = torch.tensor(sorted(held))
            assert torch.equal(buffer.read(slots), torch.stack([held[s] for s in sorted(held)]))


def test_a_sample_is_drawn_without_replacement_and_all_is_drawn_if_there_is_too_little():
    buffer = Buffer(BalancedPolicy(8, 2), ImageStorage(8))
    buffer.insert(torch.arange(8.0).view(8, 1, 1, 1), [0] * 8)
    drawn = buffer.sample(5, torch.Generator().manual_seed(0)).flatten().tolist()
    assert len(set(drawn)) == 5
    assert drawn == torch.randperm(8, generator=torch.Generator().manual_seed(0))[:5].tolist()
    assert sorted(buffer.sample(64, torch.Generator()).flatten().tolist()) == list(range(8))


def test_every_item_is_drawn_equally_often():
    buffer = Buffer(BalancedPolicy(10, 2), ImageStorage(10))
    buffer.insert(torch.arange(10.0).view(10, 1, 1, 1), [0] * 10)
    generator = torch.Generator().manual_seed(0)
    draws = torch.cat([buffer.sample(3, generator).flatten() for _ in range(4000)])
    share = torch.bincount(draws.long(), minlength=10) / 4000
    assert (share - 0.3).abs().max() < 0.03  # four standard deviations


LEVELS = torch.arange(256, dtype=torch.float64).view(1, 1, 16, 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_all_8_bit_levels_survive(dtype):
    images = (LEVELS.to(torch.promote_types(dtype, torch.float32)) / 255).to(dtype)
    storage = ImageStorage(3)
    storage.write([0], storage.encode(images))
    assert storage.dtype == torch.uint8
    assert torch.equal(storage.read(torch.tensor([0])), images)
    assert storage.read(torch.tensor([0])).dtype == dtype


def test_auto_storage_turns_native_without_losing_what_is_stored():
    storage = ImageStorage(4)
    eight_bit = LEVELS.float() / 255
    storage.write([0], storage.encode(eight_bit))
    finer = eight_bit + 1e-4
    storage.write([1], storage.encode(finer))
    storage.write([2], storage.encode(eight_bit))
    assert storage.dtype == torch.float32
    expected = torch.cat([eight_bit, finer, eight_bit])
    assert torch.equal(storage.read(torch.tensor([0, 1, 2])), expected)


@pytest.mark.parametrize("outside", [-0.5, 1.5])
def test_auto_storage_keeps_values_outside_of_the_unit_interval(outside):
    storage = ImageStorage(1)
    images = torch.full((1, 3, 2, 2), outside)
    storage.write([0], storage.encode(images))
    assert torch.equal(storage.read(torch.tensor([0])), images)


def test_uint8_storage_rounds_and_refuses_what_it_would_destroy():
    storage = ImageStorage(1, "uint8")
    storage.write([0], storage.encode(torch.full((1, 3, 2, 2), 0.5)))
    assert torch.equal(storage.read(torch.tensor([0])), torch.full((1, 3, 2, 2), 128 / 255))
    with pytest.raises(ValueError, match=r"\[0, 1\], got \[-2, 3\]"):
        storage.encode(torch.tensor([-2.0, 3.0]).view(1, 1, 1, 2))


def test_native_storage_keeps_the_dtype():
    storage = ImageStorage(1, "native")
    storage.encode(torch.zeros(1, 3, 2, 2, dtype=torch.float16))
    assert storage.dtype == torch.float16


@pytest.mark.parametrize("ours", ["auto", "uint8", "native"])
@pytest.mark.parametrize("theirs", ["auto", "uint8", "native"])
def test_storages_of_any_kind_take_over_each_others_images(ours, theirs):
    images = LEVELS.float() / 255
    saved, loaded = ImageStorage(2, theirs), ImageStorage(2, ours)
    saved.write([0], saved.encode(images))
    loaded.load_state_dict(saved.state_dict())
    loaded.write([1], loaded.encode(images))
    assert torch.equal(loaded.read(torch.tensor([0, 1])), torch.cat([images, images]))
    assert loaded.dtype == (torch.float32 if ours == "native" else loaded.dtype)


def test_storage_options_are_checked():
    with pytest.raises(ValueError, match="capacity"):
        ImageStorage(0)
    with pytest.raises(ValueError, match="'auto', 'uint8', 'native'"):
        ImageStorage(1, "float")


def test_images_are_copied_not_viewed():
    storage = ImageStorage(2, "native")
    batch = torch.rand(64, 3, 4, 4)
    storage.write([0], storage.encode(batch[:1]))
    kept = storage.read(torch.tensor([0])).clone()
    batch.zero_()
    assert torch.equal(storage.read(torch.tensor([0])), kept)
