"""Noise: each pixel changes independently."""

from __future__ import annotations

import numpy as np

from dab.data.corruptions.pixels import Image, to_levels, to_unit
from dab.data.corruptions.registry import register

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


@register(small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))
def gaussian_noise(image: Image, scale: float, rng: np.random.Generator) -> Image:
    """Normal noise of equal strength everywhere, as from a sensor in low light."""
    return to_levels(to_unit(image) + rng.normal(scale=scale, size=image.shape))


@register(small=(500, 250, 100, 75, 50), large=(60, 25, 12, 5, 3))
def shot_noise(image: Image, photons: float, rng: np.random.Generator) -> Image:
    """Poisson noise, where white is this number of photons."""
    return to_levels(rng.poisson(to_unit(image) * photons) / photons)


@register(small=(0.01, 0.02, 0.03, 0.05, 0.07), large=(0.03, 0.06, 0.09, 0.17, 0.27))
def impulse_noise(image: Image, amount: float, rng: np.random.Generator) -> Image:
    """Salt and pepper: this share of the values becomes 255 or 0."""
    hit = rng.random(image.shape) <= amount
    salt = rng.random(image.shape) <= 0.5
    return np.where(hit, np.where(salt, np.uint8(255), np.uint8(0)), image)


@register(small=(0.06, 0.1, 0.12, 0.16, 0.2), large=(0.15, 0.2, 0.35, 0.45, 0.6))
def speckle_noise(image: Image, scale: float, rng: np.random.Generator) -> Image:
    """Normal noise in proportion to the value of the pixel."""
    unit = to_unit(image)
    return to_levels(unit + unit * rng.normal(scale=scale, size=image.shape))
