"""DAB with sequence labels, against the Markov prior by itself and against one DAB per domain."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.outputs import BatchPrior, Markov
from dab.parts.snapshot import restore, snapshot
from dab.testing import same
from tests.support.nets import net, stream
from tests.support.slow.comparison import SlowComparison

# What Sequence DAB asks of DAB.
OPTIONS = {
    "capacity": 12,
    "batch_size": 12,
    "admission": "running",
    "trigger": "any",
    "filling": "adapt",
    "labels": "sequence",
    "statistics": "ema",
    "lr": 1.6e-2,
}


def runs(classes: int, length: int, count: int, margin: float = 1.5) -> list[Tensor]:
    """Images that are logits: one class after the other, mistaken for another by the margin."""
    generator = torch.Generator().manual_seed(3)
    batches = []
    for number in range(count):
        z = torch.randn(length, classes, generator=generator, dtype=torch.float64)
        z[:, number % classes] += margin
        batches.append(z.view(length, classes, 1, 1))
    return batches


def echo() -> nn.Module:
    """A 'classifier' of such images."""
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(6, dtype=torch.float64))


@pytest.mark.parametrize("output", [None, "batch_prior"])
def test_the_buffer_has_the_labels_of_the_answers(output):
    options = {**OPTIONS, "capacity": 2000, "lr": 1e-30}
    adapter, model = dab.DAB(echo(), **options, output=output), echo()
    differ = 0
    for images in runs(6, 20, 30):
        known = len(adapter.buffer or [])
        answers = adapter(images).argmax(dim=1).tolist()
        own = model(images).argmax(dim=1).tolist()
        remaining = iter(zip(answers, own, strict=True))
        for label in adapter.buffer.labels[known:]:  # in the order of the stream
            answer, guess = next(pair for pair in remaining if pair[0] == label)
            differ += answer != guess
    assert differ > 20


def test_answers_are_corrected_once():
    adapter, model = dab.DAB(echo(), **{**OPTIONS, "lr": 1e-30}), echo()
    alone = Markov()
    for images in runs(6, 20, 20):
        expected = alone.correct(model(images), None)
        torch.testing.assert_close(adapter(images), expected.detach())
    assert same(adapter.output.state_dict(), alone.state_dict())


class VariedDAB(dab.DAB):
    """A DAB that waits for classes, spreads its predictions, and shortens its steps.

    It compares its predictions with those of a copy of the source model.
    """

    shortened = averaged = 0
    does_harm = False

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        if not self.totals.updates:
            return super().adapt(images, logits)
        y, z = logits.softmax(dim=1), self.source_model(images).softmax(dim=1)
        self.compared.add(y, z)
        opinion = self.compared.opinion(128)
        of_classes = self.output.reliance * 0.3**2 / opinion["source_classes"]
        variance = opinion["uncertainty"] ** 2 + of_classes
        self.does_harm = opinion["added_error"] > 1.5 * variance**0.5
        if self.does_harm:
            return logits  # and begin again with the same images
        if opinion["added_error"] > 0:
            self.averaged += 1
            scales = logits.exp().sum(dim=1).tolist()
            rows = zip(y.tolist(), z.tolist(), scales, strict=True)
            means = [
                [(p + q) / 2 * total for p, q in zip(a, b, strict=True)] for a, b, total in rows
            ]
            logits = torch.tensor(means, dtype=logits.dtype).log()
        return super().adapt(images, logits)

    def is_due(self) -> bool:
        seen: list[int] = []
        for label in self.buffer.labels:
            if label not in seen:
                seen.append(label)
        if not super().is_due() or len(seen) < 2:
            return False
        return len(seen) >= 3 or self.totals.updates < len(seen)  # 3 = min(12 / 4, 6 / 2)

    def loss(self, logits: Tensor) -> Tensor:
        y = logits.softmax(dim=1)
        means = [sum(row[c] for row in y) / len(y) for c in range(y.shape[1])]
        return super().loss(logits) + 3 * sum(mean * mean.log() for mean in means)

    def step(self, images: Tensor, logits: Tensor, loss: Tensor) -> bool:
        old = [value.detach().clone() for value in self.trained.parameters]
        stepped = super().step(images, logits, loss)
        y, z = (p.softmax(dim=1).tolist() for p in (logits.detach(), self.model(images)))
        pairs = [pair for rows in zip(y, z, strict=True) for pair in zip(*rows, strict=True)]
        moved = sum(a * math.log(a / b) for a, b in pairs) / len(y)
        unsure = sum(-a * math.log(a) for row in y for a in row) / len(y)
        if moved > (0.2 * unsure) ** 2:
            self.shortened += 1
            for value, before in zip(self.trained.parameters, old, strict=True):
                value.copy_(before + 0.2 * unsure / moved**0.5 * (value - before))
        return stepped


def domains(seed: int, sizes: list[int]) -> list[Tensor]:
    """Batches of images whose contrast changes from domain to domain, far more than inside."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for number, size in enumerate(sizes):
        noise = torch.rand(12 * size, 3, 8, 8, generator=generator, dtype=torch.float64) - 0.5
        contrast = torch.rand(12 * size, 1, 1, 1, generator=generator, dtype=torch.float64)
        contrast = (0.5 + 0.5 * contrast) * 8.0 ** -(number % 2)
        color = torch.rand(12 * size, 3, 1, 1, generator=generator, dtype=torch.float64)
        batches += list((color + noise * contrast).split(size))
    return batches


class Prior(BatchPrior):
    """The batch prior, which says that it relies on the order to some extent."""

    def __init__(self, reliance: float) -> None:
        self.share = reliance

    @property
    def reliance(self) -> float:
        return self.share


def new_twin(reliance: float, old: dab.DAB | None = None) -> VariedDAB:
    """A DAB that has learned nothing."""
    model = net("layernorm").double()
    source = deepcopy(model)
    twin = VariedDAB(model, **OPTIONS, output=Prior(reliance))
    twin.source_model, twin.compared = source.eval(), SlowComparison()
    if old is not None:
        twin.generator.set_state(old.generator.get_state())
    return twin


def check_against_twins(adapter: dab.Adapter, batches: list[Tensor], shifts: list[int]) -> list:
    """Returns all twins: another one from each shift on, and where adapting does harm."""
    reliance = adapter.output.reliance
    twins = [new_twin(reliance)]
    for number, images in enumerate(batches):
        if number in shifts:
            twins.append(new_twin(reliance, twins[-1]))
        expected = twins[-1](images)
        if twins[-1].does_harm:
            twins.append(new_twin(reliance, twins[-1]))
            expected = twins[-1](images)
        twin = twins[-1]
        torch.testing.assert_close(adapter(images), expected, rtol=0, atol=1e-7)
        assert adapter.last.restarted == (number > 0 and twin.totals.calls == 1)
        assert adapter.last.updated == twin.last.updated
        for own, other in zip(adapter.trained.parameters, twin.trained.parameters, strict=True):
            torch.testing.assert_close(own, other, rtol=0, atol=1e-9)
        assert adapter.buffer.labels == twin.buffer.labels
    assert adapter.totals.restarts == len(twins) - 1
    assert adapter.totals.updates > 0
    assert any(twin.shortened for twin in twins)
    return twins


def new_adapter(reliance: float = 0.0, **options: float) -> dab.Adapter:
    model = net("layernorm").double()
    options = {"capacity": 12, "batch_size": 12, **options}
    return dab.create("sequence_dab", model, output=Prior(reliance), **options)


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.integers(40, 48), min_size=2, max_size=3),
    reliance=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_each_domain_is_a_dab_of_its_own(seed, sizes, reliance):
    shifts = [12 * number for number in range(1, len(sizes))]
    check_against_twins(new_adapter(reliance), domains(seed, sizes), shifts)


def test_it_averages_and_starts_over_where_adapting_does_harm():
    twins = check_against_twins(new_adapter(), domains(0, [44] * 3), [12, 24])
    assert any(twin.averaged for twin in twins)
    assert sum(twin.does_harm for twin in twins) > 1


def test_a_few_classes_in_a_row_say_little_about_the_others():
    batches, restarts = domains(0, [44] * 3), []
    for reliance in (0.0, 0.01, 1.0):
        adapter = new_adapter(reliance)
        for images in batches:
            adapter(images)
        restarts.append(adapter.totals.restarts)
    assert restarts == sorted(restarts, reverse=True)
    assert restarts[0] > restarts[-1]


@pytest.mark.parametrize("size", [1, 40])
def test_the_budget_also_limits_what_the_source_predicts(size, monkeypatch):
    adapter, compared = new_adapter(budget=0.25), []

    def as_source(images: Tensor) -> Tensor:
        compared.append(len(images))
        return dab.Adapter.as_source(adapter, images)

    monkeypatch.setattr(adapter, "as_source", as_source)
    possible = 0
    for images in domains(0, [40])[:8]:
        for part in images.split(size):
            possible += len(part) if adapter.memory and adapter.memory.updates else 0
            adapter(part)
    assert 0.2 * possible < sum(compared) <= 0.25 * possible


@pytest.mark.parametrize(("kind", "batch_size"), [("layernorm", 64), ("batchnorm", 64)])
def test_a_step_of_no_length_is_not_shortened(kind, batch_size, monkeypatch):
    """What is checked is the step, not the statistics of another batch."""
    adapter = dab.create(
        "sequence_dab", net(kind).double(), capacity=64, batch_size=batch_size, lr=1e-9
    )
    ensemble, shortened = adapter.trained.ensemble, []
    monkeypatch.setattr(
        adapter.trained,
        "ensemble",
        lambda keep, others=None: (shortened.append(others is not None), ensemble(keep, others)),
    )
    for images in domains(0, [44]):
        adapter(images)
    assert adapter.totals.updates > 3
    assert shortened
    assert not any(shortened)


def test_every_fourth_image_shows_how_far_a_step_goes(monkeypatch):
    adapter, sizes = new_adapter(), []
    run = adapter.run
    monkeypatch.setattr(
        adapter, "run", lambda images, *p: (sizes.append(len(images)), run(images, *p))[1]
    )
    images, logits = domains(0, [44])[0], torch.zeros(44, 6, dtype=torch.float64)
    adapter(images)
    for size in (2, 8, 16, 44):
        loss = sum(value.sum() for value in adapter.trained.parameters)
        with torch.no_grad():
            adapter.step(images[:size], logits[:size], loss)
    assert sizes[-4:] == [2, 8, 8, 11]


def test_the_source_answers_where_statistics_do_harm():
    model = net("batchnorm").double()
    source = deepcopy(model).eval()
    adapter = dab.create(
        "sequence_dab", model, capacity=12, batch_size=8, lr=1e-12, output=Prior(0.0)
    )
    harms = 0
    for number, images in enumerate(domains(0, [44] * 3)):
        adapter(images)
        if adapter.last.restarted and number not in (12, 24):  # where the images change
            harms += 1
            torch.testing.assert_close(adapter.uncorrected, source(images))
    assert harms > 3


def test_the_window_is_as_long_for_single_images():
    adapter = new_adapter(budget=0.25)
    for images in domains(0, [44])[:12]:
        for image in images.split(1):
            adapter(image)
    opinion = adapter.memory.comparison.opinion(round(128 / 0.25))
    assert opinion is None or opinion.samples <= 129


def test_a_comparison_with_other_classes_is_refused():
    adapter = new_adapter()
    for images in domains(0, [44])[:10]:
        adapter(images)
    saved = snapshot(adapter.memory)
    restore(adapter.begin(6), saved, 6)
    columns = saved["comparison"]["rows"]["columns"]
    columns[0] = columns[0][:, :-1]
    with pytest.raises(ValueError, match="another number of classes"):
        restore(adapter.begin(6), saved, 6)


def test_a_long_run_gets_one_update_per_class_until_there_are_enough():
    adapter = dab.create(
        "sequence_dab", echo(), capacity=64, batch_size=16, output="batch_prior", lr=1e-4
    )
    long_runs = [images for images in runs(6, 20, 6, margin=9) for _ in range(4)]
    updates, waited = 0, False
    for images in long_runs:
        adapter(images)
        updates += adapter.last.updated
        classes = len(set(adapter.buffer.labels))
        if classes < 3:  # min(16 / 4, 6 / 2)
            assert updates <= classes
            waited = waited or updates == classes
    assert waited
    assert updates > 6


def test_a_budget_limits_updates_and_is_spent_after_a_shift():
    batches = domains(0, [40] * 8)
    free = dab.create("sequence_dab", net("layernorm").double(), capacity=12, batch_size=8)
    tight = dab.create(
        "sequence_dab", net("layernorm").double(), capacity=12, batch_size=8, budget=0.05
    )
    updated = []
    for images in batches:
        free(images)
        tight(images)
        updated.append(tight.last.updated)
    assert tight.totals.updates <= 16 + 0.05 * len(batches) < free.totals.updates
    assert any(updated[60:])  # what was earned meanwhile is spent after the later shifts


def test_it_says_what_it_waits_for():
    adapter = dab.create("sequence_dab", net("layernorm"), capacity=12, batch_size=16, budget=0.01)
    said = set()
    for images in stream((9,) * 60, seed=5):
        adapter(images)
        said.add(adapter.last.reason.partition(":")[0])
    adapter.reset()
    adapter(stream((1,))[0])
    assert adapter.status == "waiting: the buffer needs 2 more classes"
    assert "saving" in said
    assert "updated" in said


def test_single_images_adapt_too():
    adapter = dab.create("sequence_dab", net("layernorm"), capacity=16, batch_size=8)
    for images in stream((1,) * 80, seed=4):
        adapter(images)
    assert adapter.totals.updates > 5


def test_labels_that_were_guesses_are_forgotten():
    """Once the order is relied on, adaptation starts over with labels that follow it."""
    adapter = dab.create("sequence_dab", echo(), capacity=64, batch_size=8)
    source = [value.clone() for value in adapter.trained.source]
    relied, restarts = [False], 0
    for images in runs(6, 20, 40):
        adapter(images)
        relied.append(adapter.output.reliance > 0.5)
        if adapter.last.restarted:
            restarts += 1
            assert relied[-2:] == [False, True]
            assert adapter.last.fill == len(adapter.buffer) == adapter.last.admitted
            if not adapter.last.updated:
                assert same(adapter.trained.parameters, source)
    assert restarts == adapter.totals.restarts == 1
    assert adapter.totals.updates > 5


@pytest.mark.parametrize(("capacity", "batch_size"), [(8, 64), (64, 2)])
def test_small_buffers_and_batches_learn_too(capacity, batch_size):
    adapter = dab.create("sequence_dab", echo(), capacity=capacity, batch_size=batch_size)
    for images in runs(6, 20, 30):
        adapter(images)
        assert not adapter.last.updated or len(set(adapter.buffer.labels)) >= 2
    assert adapter.totals.updates > 5


def test_statistics_of_batch_norm_start_over_too():
    adapter = dab.create("sequence_dab", net("batchnorm").double(), capacity=12, batch_size=8)
    for images in domains(0, [20, 20]):
        adapter(images)
        if adapter.last.restarted:
            fresh = dab.create("source", net("batchnorm").double(), statistics="ema")
            fresh(images)
            assert same(adapter.statistics.state_dict(), fresh.statistics.state_dict())
    assert adapter.totals.restarts > 0
