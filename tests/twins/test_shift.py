"""The shift detector and the budget against twins written with loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dab.buffers import Budget
from dab.parts.shift import ShiftDetector, octave_energies
from dab.testing import same


def slow_energies(image: np.ndarray) -> list[float]:
    """Of one image (channels, height, width), pixel by pixel."""
    channels, height, width = image.shape
    places = [(i, j) for i in range(height) for j in range(width)]
    gray = {at: sum(image[c][at] for c in range(channels)) / channels for at in places}
    planes = [gray, *({at: image[c][at] - gray[at] for at in places} for c in range(channels - 1))]
    return [energy for plane in planes for energy in slow_octaves(plane, height, width)]


def slow_octaves(plane: dict[tuple[int, int], float], height: int, width: int) -> list[float]:
    def power(x: dict[tuple[int, int], float]) -> float:
        return sum(value * value for value in x.values()) / len(x)

    found = []
    while len(found) < 4 and min(height, width) >= 4:
        height, width = height // 2, width // 2
        plane = {(i, j): v for (i, j), v in plane.items() if i < 2 * height and j < 2 * width}
        half = {
            (i, j): sum(plane[2 * i + a, 2 * j + b] for a in (0, 1) for b in (0, 1)) / 4
            for i in range(height)
            for j in range(width)
        }
        found.append(power(plane) - power(half))
        plane = half
    mean = sum(plane.values()) / len(plane)
    found.append(power({at: value - mean for at, value in plane.items()}))
    return [math.log(max(energy, 1e-6)) / 2 for energy in found]


def quadratic(matrix: list[list[float]], vector: list[float]) -> float:
    """v^T A^-1 v for a positive definite A, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    total = 0.0
    for k, pivot in enumerate(rows):
        total += pivot[-1] ** 2 / pivot[k]
        for row in rows[k + 1 :]:
            factor = row[k] / pivot[k]
            for j in range(k, len(pivot)):
                row[j] -= factor * pivot[j]
    return total


class SlowDetector:
    """Keeps weights and rows of the recent images, and moments of all before in plain lists."""

    def __init__(self) -> None:
        self.mean: list[float] = []
        self.covariance: list[list[float]] = []
        self.last: list[float] = []
        self.recent: list[tuple[float, list[float]]] = []

    def weight(self, row: list[float]) -> float:
        if not self.last:
            return 1.0
        known = self.covariance or [[0.0] * len(row)] * len(row)
        terms = enumerate(zip(row, self.last, strict=True))
        total = sum((a - b) ** 2 / (2 * max(known[j][j], 0.03)) for j, (a, b) in terms)
        return min(1.0, total / len(row))

    def __call__(self, rows: list[list[float]]) -> tuple[bool, float]:
        """Whether there is a shift, and how far it was from being otherwise."""
        for row in rows:
            self.recent.append((self.weight(row), row))
            self.last = row
        n, width = sum(w for w, _ in self.recent), range(len(rows[0]))
        if n < 16:
            return False, 16 - n
        pairs, self.recent = self.recent, []
        margin = n - 16
        mean = [sum(w * row[j] for w, row in pairs) / n for j in width]
        new = [
            [
                sum(w * (row[j] - mean[j]) * (row[k] - mean[k]) for w, row in pairs) / n
                for k in width
            ]
            for j in width
        ]
        if not self.mean:
            self.mean, self.covariance, self.count = mean, new, min(n, 2000)
            return False, margin
        old = self.covariance
        away = [r - m for r, m in zip(mean, self.mean, strict=True)]
        units = [[old[j][k] + 0.003 * (j == k) for k in width] for j in width]
        score = quadratic(units, away) / len(away)
        margin = min(margin, abs(score - 0.2), abs(self.count - 64))
        if self.count >= 64 and score > 0.2:
            self.mean, self.count = mean, min(n, 2000)
            return True, margin
        share = n / (self.count + n)
        between = share * (1 - share)
        self.covariance = [
            [
                (1 - share) * old[j][k] + share * new[j][k] + between * away[j] * away[k]
                for k in width
            ]
            for j in width
        ]
        self.mean = [m + share * d for m, d in zip(self.mean, away, strict=True)]
        self.count = min(self.count + n, 2000)
        return False, margin


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 19),
    width=st.integers(1, 19),
    scale=st.sampled_from([0.0, 0.01, 1.0, 255.0]),
)
def test_energies_equal_the_twin(seed, channels, height, width, scale):
    images = scale * np.random.default_rng(seed).random((2, channels, height, width))
    found = octave_energies(torch.tensor(images))
    assert found.dtype == torch.float64
    for row, image in zip(found.tolist(), images, strict=True):
        assert row == pytest.approx(slow_energies(image), abs=1e-7)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    sizes=st.lists(st.sampled_from([1, 5, 40, 90]), min_size=2, max_size=25),
    contrasts=st.lists(st.sampled_from([0.05, 0.3, 1.0]), min_size=1, max_size=3),
)
def test_shifts_equal_the_twin(seed, sizes, contrasts):
    rng = np.random.default_rng(seed)
    detector, twin = ShiftDetector(), SlowDetector()
    for number, n in enumerate(sizes):
        contrast = contrasts[number * len(contrasts) // len(sizes)] * rng.uniform(0.8, 1.2)
        images = torch.tensor(0.5 + contrast * (rng.random((n, 1, 6, 6)) - 0.5))
        shifted, margin = twin(octave_energies(images).tolist())
        if margin < 1e-9:
            return  # too close for doubles to tell
        assert detector.notices(images) == shifted
    before = detector.state_dict()["before"]
    assert (before is None) == (not twin.mean)
    if before is not None:
        assert before["mean"].tolist() == pytest.approx(twin.mean)
        assert before["covariance"].flatten().tolist() == pytest.approx(
            [value for row in twin.covariance for value in row], abs=1e-12
        )


def textures(count: int, seed: int, coarse: int) -> torch.Tensor:
    """Images with patterns of some size in pixels, of different contrast."""
    generator = torch.Generator().manual_seed(seed)
    contrast = 0.4 + 0.6 * torch.rand(count, 1, 1, 1, generator=generator)
    small = torch.rand(count, 3, 32 // coarse, 32 // coarse, generator=generator)
    large = torch.nn.functional.interpolate(small, size=32, mode="nearest")
    return contrast * (large + 0.3 * torch.rand(count, 3, 32, 32, generator=generator))


@pytest.mark.parametrize("batch", [1, 16, 32, 64])
def test_coarser_images_are_noticed_soon_and_brighter_ones_are_not(batch):
    detector = ShiftDetector()
    images = textures(384, 0, 2)
    images[192:] += torch.rand(192, 3, 1, 1, generator=torch.Generator().manual_seed(1))
    assert not any(detector.notices(part) for part in images.split(batch))
    later = [detector.notices(part) for part in textures(384, 2, 8).split(batch)]
    assert sum(later) == 1
    assert later.index(True) * batch < 128  # single images need some


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_scenes_of_similar_frames_are_not_shifts(batch):
    detector = ShiftDetector()
    scenes = textures(12, 0, 2).repeat_interleave(64, dim=0)
    frames = scenes + 0.01 * torch.rand(scenes.shape, generator=torch.Generator().manual_seed(1))
    assert not any(detector.notices(part) for part in frames.split(batch))
    assert not detector.notices(frames[-1:].expand(3, -1, -1, -1))


def test_a_large_constant_has_no_energy():
    images = torch.full((1, 3, 32, 32), 200.7)
    assert octave_energies(images).tolist() == [[math.log(1e-6) / 2] * 15]


@pytest.mark.parametrize("sizes", [(64,) * 40, (2500,), (100, 2500)])
def test_a_detector_resumes_after_any_number_of_images(sizes):
    detector, resumed = ShiftDetector(), ShiftDetector()
    images = textures(2500, 2, 2)
    for size in sizes:
        detector.notices(images[:size])
    resumed.load_state_dict(detector.state_dict())
    assert resumed.notices(images[:7]) == detector.notices(images[:7])
    assert same(resumed.state_dict(), detector.state_dict())


def slow_budget(share: float, due: list[bool], shifts: list[bool]) -> list[bool]:
    saved, is_open, made = 16.0, True, []
    for wanted, shift in zip(due, shifts, strict=True):
        saved = min(saved + share, 17.0)
        is_open = is_open or shift
        made.append(wanted and (saved >= 1 if is_open else saved >= 17))
        if made[-1]:
            saved -= 1
            if saved < 1:
                is_open = False
    return made


@settings(max_examples=60, deadline=None)
@given(
    share=st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0]),
    calls=st.lists(st.tuples(st.booleans(), st.sampled_from([False] * 9 + [True])), max_size=300),
)
def test_spending_equals_the_twin_and_stays_within_the_budget(share, calls):
    budget, made = Budget(share), []
    for due, shift in calls:
        budget.earn()
        if shift:
            budget.open()
        made.append(due and budget.affords)
        if made[-1]:
            budget.pay()
    assert made == slow_budget(share, [due for due, _ in calls], [shift for _, shift in calls])
    assert sum(made) <= 16 + share * len(calls) + 1e-9
    if share == 1:
        assert made == [due for due, _ in calls]
