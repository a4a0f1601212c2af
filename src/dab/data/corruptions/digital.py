"""Artifacts of processing: compression, resampling, warping, contrast and saturation."""

from __future__ import annotations

from io import BytesIO

import cv2
import numpy as np
from PIL import Image as Pillow

from dab.data.corruptions.color import to_hsv, to_rgb
from dab.data.corruptions.filters import displace, smooth
from dab.data.corruptions.pixels import Image, to_levels, to_unit
from dab.data.corruptions.registry import register

__all__ = ["contrast", "elastic_transform", "jpeg_compression", "pixelate", "saturate"]


@register(small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))
def contrast(image: Image, share: float, rng: np.random.Generator) -> Image:
    """Scales the distance to the mean of the channel by `share`."""
    unit = to_unit(image)
    mean = unit.mean(axis=(0, 1), keepdims=True)
    return to_levels((unit - mean) * share + mean)


@register(
    small=(
        (32, 0, 0, 32 * 0.08),
        (32, 32 * 0.05, 32 * 0.2, 32 * 0.07),
        (32, 32 * 0.08, 32 * 0.06, 32 * 0.06),
        (32, 32 * 0.1, 32 * 0.04, 32 * 0.05),
        (32, 32 * 0.1, 32 * 0.03, 32 * 0.03),
    ),
    large=(  # 244, not 224, as published
        (224, 244 * 2, 244 * 0.7, 244 * 0.1),
        (224, 244 * 2, 244 * 0.08, 244 * 0.2),
        (224, 244 * 0.05, 244 * 0.01, 244 * 0.02),
        (224, 244 * 0.07, 244 * 0.01, 244 * 0.02),
        (224, 244 * 0.12, 244 * 0.01, 244 * 0.02),
    ),
)
def elastic_transform(
    image: Image, constants: tuple[int, float, float, float], rng: np.random.Generator
) -> Image:
    """A random affine map, then a smooth random displacement of every pixel.

    Lengths scale with the shorter side of the image: those for 224 pixels would turn an image of
    96 pixels inside out.
    """
    size, *lengths = constants
    height, width = image.shape[:2]
    strength, sigma, jitter = (length * min(height, width) / size for length in lengths)

    center = np.array([width // 2, height // 2])
    arm = max(1, min(height, width) // 3)
    corners = (center + arm * np.array([[1, 1], [1, -1], [-1, -1]])).astype(np.float32)
    moved = corners + rng.uniform(-jitter, jitter, size=(3, 2)).astype(np.float32)
    warped = cv2.warpAffine(
        to_unit(image).astype(np.float32),
        cv2.getAffineTransform(corners, moved),
        (width, height),
        borderMode=cv2.BORDER_REFLECT_101,
    )

    right, down = (
        (smooth(rng.uniform(-1, 1, (height, width)), sigma, "reflect", 3) * strength).astype(
            np.float32
        )
        for _ in range(2)
    )
    rows, columns = np.mgrid[:height, :width]
    planes = [displace(plane, rows + down, columns + right) for plane in np.moveaxis(warped, 2, 0)]
    return to_levels(np.stack(planes, axis=2))


@register(small=(0.95, 0.9, 0.85, 0.75, 0.65), large=(0.6, 0.5, 0.4, 0.3, 0.25))
def pixelate(image: Image, share: float, rng: np.random.Generator) -> Image:
    """Shrinks the sides to this share and enlarges them again."""
    height, width = image.shape[:2]
    size = max(1, int(width * share)), max(1, int(height * share))
    shrunk = Pillow.fromarray(image).resize(size, Pillow.Resampling.BOX)
    return np.array(shrunk.resize((width, height), Pillow.Resampling.BOX))


@register(small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7))
def jpeg_compression(image: Image, quality: int, rng: np.random.Generator) -> Image:
    """Saves the image as JPEG of this quality."""
    file = BytesIO()
    Pillow.fromarray(image).save(file, "JPEG", quality=quality)
    return np.array(Pillow.open(file))


@register(
    small=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    large=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
)
def saturate(image: Image, constants: tuple[float, float], rng: np.random.Generator) -> Image:
    """Paler colors at severities 1 and 2, stronger colors at 3 to 5."""
    gain, offset = constants
    hue, saturation, value = to_hsv(to_unit(image))
    return to_levels(to_rgb(hue, np.clip(saturation * gain + offset, 0, 1), value))
