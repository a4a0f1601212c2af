"""Random textures: clouds and ice."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ["ice", "plasma"]


def plasma(size: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Clouds in [0, 1] by the diamond-square algorithm, on a square of the next power of two.

    A midpoint is the mean of its four neighbors, with wrapped edges, plus a random deviation that
    shrinks by `decay` squared whenever the grid is halved.
    """
    side = max(2, 1 << (size - 1).bit_length())
    heights = np.zeros((side, side))
    step, deviation = side, 100.0

    def midpoints(neighbors: NDArray[np.float64]) -> NDArray[np.float64]:
        return neighbors / 4 + deviation * rng.uniform(-deviation, deviation, neighbors.shape)

    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        below, beside = corners + np.roll(corners, -1, 0), corners + np.roll(corners, -1, 1)
        centers = midpoints(below + np.roll(below, -1, 1))
        heights[half::step, half::step] = centers
        heights[::step, half::step] = midpoints(centers + np.roll(centers, 1, 0) + beside)
        heights[half::step, ::step] = midpoints(centers + np.roll(centers, 1, 1) + below)
        step, deviation = half, deviation / decay
    heights -= heights.min()
    heights /= heights.max()
    return heights


def ice(height: int, width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """A pane of bright frost crystals on a haze, in pale blue, with levels of 0 to 255."""
    haze = plasma(max(height, width), 1.4, rng)[:height, :width]
    flowers = np.zeros((height, width), dtype=np.float32)
    for glint in np.linspace(0.4, 1, 5):
        layer = np.zeros((height, width), dtype=np.uint8)
        cv2.polylines(layer, _needles(height, width, rng), False, 255, 1, cv2.LINE_AA, shift=4)
        flowers = np.maximum(flowers, glint / 255 * layer)
    tone, contrast = rng.uniform(100, 190), rng.uniform(50, 110)
    levels = tone + contrast * (flowers + 1.3 * (haze - 0.5))
    blueness = rng.uniform(0, 0.2)
    tint = np.array([1 - blueness, 1, 1 + blueness / 2], dtype=np.float32)
    pane: NDArray[np.float32] = np.clip(levels[..., None].astype(np.float32) * tint, 0, 255)
    return pane


def _needles(height: int, width: int, rng: np.random.Generator) -> list[NDArray[np.int32]]:
    """Draws the needles of some frost crystals: the two ends of each, in sixteenths of a pixel.

    A crystal is a stem with barbs on both sides, all at the same angle and shorter toward the tip.
    """
    flowers, barbs = 1 + height * width // 1200, 18
    root = rng.uniform((0, 0), (width, height), (flowers, 1, 2))
    length = rng.uniform(15, 80, (flowers, 1, 1))
    heading = rng.uniform(0, 2 * np.pi, (flowers, 1))
    branching = rng.uniform(0.35, 1, (flowers, 1))
    along = np.linspace(0, 1, barbs)[:, None]
    foot = root + along * length * _direction(heading)
    needles = [np.stack([root, foot[:, -1:]], axis=2)]
    for side in (-1, 1):
        barb = 0.35 * length * (1 - along) * rng.uniform(0.4, 1, (flowers, barbs, 1))
        tip = foot + barb * _direction(heading + side * branching)
        needles.append(np.stack([foot, tip], axis=2))
    ends = np.concatenate([needle.reshape(-1, 2, 2) for needle in needles])
    return list(np.rint(16 * ends).astype(np.int32))


def _direction(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
