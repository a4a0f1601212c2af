"""The registry of corruptions, with their constants for small and for large images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dab.data.corruptions.pixels import Image
from dab.utils.suggest import unknown

__all__ = ["corrupt", "register"]

SMALL = 64  # images with a shorter side up to this use the constants for 32 pixels
SEVERITIES = range(1, 6)

Constants = TypeVar("Constants")
Corruption = Callable[[Image, Constants, np.random.Generator], Image]

_CORRUPTIONS: dict[str, tuple[Corruption[Any], Sequence[Any], Sequence[Any]]] = {}


def register(
    *, small: Sequence[Constants], large: Sequence[Constants]
) -> Callable[[Corruption[Constants]], Corruption[Constants]]:
    """Decorator that registers a corruption under the name of the function.

    Args:
        small: the constants of CIFAR-10-C for severities 1 to 5, designed for 32 pixels.
        large: those of ImageNet-C, designed for 224 pixels.
    """

    def decorate(function: Corruption[Constants]) -> Corruption[Constants]:
        _CORRUPTIONS[function.__name__] = function, small, large
        return function

    return decorate


def corrupt(image: Image, name: str, severity: int, rng: np.random.Generator) -> Image:
    """Returns a corrupted copy of an image.

    Args:
        image: uint8 (height, width, 3). If its shorter side has up to 64 pixels, the constants
            published for 32 pixels are used, otherwise those for 224.
        name: one of `CORRUPTIONS` or `HELD_OUT`.
        severity: 1 to 5.
        rng: the only source of randomness: equal states give equal bytes.

    >>> image = np.full((224, 224, 3), 100, np.uint8)
    >>> corrupt(image, "brightness", 3, np.random.default_rng(0))[0, 0]
    array([176, 176, 176], dtype=uint8)
    >>> corrupt(image, "rain", 3, np.random.default_rng(0))
    Traceback (most recent call last):
    ValueError: unknown corruption 'rain'; ...
    """
    if name not in _CORRUPTIONS:
        raise ValueError(unknown("corruption", name, sorted(_CORRUPTIONS)))
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be 1 to 5, got {severity!r}")
    _check(image)
    function, small, large = _CORRUPTIONS[name]
    constants = (small if min(image.shape[:2]) <= SMALL else large)[severity - 1]
    return function(np.ascontiguousarray(image), constants, rng)


def _check(image: Any) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        found = image.dtype if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"an image must be a uint8 array, got {found}")
    if image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ValueError(f"an image must have shape (height, width, 3), got {image.shape}")
