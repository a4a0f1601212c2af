"""Weather: snow, frost, fog, bright light, and drops on the lens."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from dab.data.corruptions.color import to_hsv, to_rgb
from dab.data.corruptions.filters import magnify, smear, smooth
from dab.data.corruptions.pixels import Image, to_levels, to_unit
from dab.data.corruptions.registry import register
from dab.data.corruptions.textures import ice, plasma

__all__ = ["brightness", "fog", "frost", "snow", "spatter"]

WATER = np.array([175, 238, 238]) / 255
MUD = np.array([63, 42, 20]) / 255


@register(
    small=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    large=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)
def snow(
    image: Image,
    constants: tuple[float, float, float, float, int, float, float],
    rng: np.random.Generator,
) -> Image:
    """Flakes that fall in streaks in front of a whitened image."""
    mean, deviation, zoom, threshold, radius, sigma, kept = constants
    flakes = magnify(rng.normal(mean, deviation, image.shape[:2]), zoom)
    flakes = np.where(flakes < threshold, 0, flakes)
    streaks = np.rint(smear(to_levels(flakes), radius, sigma, rng.uniform(-135, -45))) / 255
    unit = to_unit(image).astype(np.float32)
    gray = cv2.cvtColor(unit, cv2.COLOR_RGB2GRAY)[..., None]
    whitened = kept * unit + (1 - kept) * np.maximum(unit, gray * 1.5 + 0.5)
    return to_levels(whitened + (streaks + streaks[::-1, ::-1])[..., None])


@register(
    small=((1, 0.2, 5), (1, 0.3, 5), (0.9, 0.4, 5), (0.85, 0.4, 5), (0.75, 0.45, 5)),
    large=((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
)
def frost(image: Image, constants: tuple[float, float, int], rng: np.random.Generator) -> Image:
    """Frost on a window pane.

    The published script blends photographs of frost into the image. Here the ice is drawn at random
    instead, with crystals about as large and as bright as in those photographs. The weights of the
    blend and the reduction of the ice for small images are the published ones.
    """
    image_share, ice_share, reduction = constants
    height, width = image.shape[:2]
    pane = cv2.resize(ice(height * reduction, width * reduction, rng), (width, height))
    return np.clip(image_share * image + ice_share * pane, 0, 255).astype(np.uint8)


@register(
    small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(image: Image, constants: tuple[float, float], rng: np.random.Generator) -> Image:
    """Adds the clouds of a plasma fractal and rescales the result to the image's brightest value.

    The side of the fractal is the longer side of the image, or the next power of two.
    """
    density, decay = constants
    height, width = image.shape[:2]
    cloud = plasma(max(height, width), decay, rng)[:height, :width, None]
    unit = to_unit(image)
    brightest = unit.max()
    return to_levels((unit + density * cloud) * brightest / (brightest + density))


@register(small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5))
def brightness(image: Image, amount: float, rng: np.random.Generator) -> Image:
    """Adds `amount` to the value, at the same hue and saturation."""
    hue, saturation, value = to_hsv(to_unit(image))
    return to_levels(to_rgb(hue, saturation, np.clip(value + amount, 0, 1)))


@register(
    small=(
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    large=(
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
)
def spatter(
    image: Image,
    constants: tuple[float, float, float, float, float, bool],
    rng: np.random.Generator,
) -> Image:
    """Drops on the lens: water at severities 1 to 3, mud at 4 and 5."""
    mean, deviation, sigma, threshold, amount, muddy = constants
    liquid = smooth(rng.normal(mean, deviation, image.shape[:2]), sigma)
    unit = to_unit(image).astype(np.float32)
    if muddy:
        mud = smooth((liquid > threshold).astype(np.float32), amount)
        mud = np.where(mud < 0.8, 0, mud)[..., None]
        return to_levels(unit * (1 - mud) + MUD * mud)
    drops = to_levels(np.where(liquid < threshold, 0, liquid))
    water = drops * _relief(drops)
    return to_levels(unit + (amount * water / max(water.max(), 1))[..., None] * WATER)


def _relief(drops: Image) -> NDArray[np.float32]:
    """Light from one corner that falls on the edges of the drops."""
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    near = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    slope = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)
    lit = cv2.filter2D(cv2.equalizeHist(near), cv2.CV_8U, slope)
    return cv2.blur(lit, (3, 3)).astype(np.float32)
