"""Corruptions by name, each with its constants for small and for large images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dab.data.corruptions.pixels import Image

__all__ = ["corrupt", "register"]

SMALL = 64  # the longest shorter side of an image that takes the constants made for 32 pixels
SEVERITIES = range(1, 6)

Constants = TypeVar("Constants")
Corruption = Callable[[Image, Constants, np.random.Generator], Image]

_CORRUPTIONS: dict[str, tuple[Corruption[Any], Sequence[Any], Sequence[Any]]] = {}


def register(
    *, small: Sequence[Constants], large: Sequence[Constants]
) -> Callable[[Corruption[Constants]], Corruption[Constants]]:
    """Function decorator that makes a corruption known to `corrupt` under the function's name.

    Args:
        small: the constants of severities 1 to 5 in CIFAR-10-C, made for 32 pixels.
        large: those in ImageNet-C, made for 224 pixels.
    """

    def decorate(function: Corruption[Constants]) -> Corruption[Constants]:
        _CORRUPTIONS[function.__name__] = function, small, large
        return function

    return decorate


def corrupt(image: Image, name: str, severity: int, rng: np.random.Generator) -> Image:
    """A corrupted copy of an image.

    Args:
        image: (height, width, 3) in 8 bits. Up to 64 pixels on its shorter side it gets the
            constants that were published for 32 pixels, above that those for 224.
        name: one of `CORRUPTIONS` or `HELD_OUT`.
        severity: 1 to 5.
        rng: all randomness comes from here: the same state gives the same bytes.

    >>> image = np.full((224, 224, 3), 100, np.uint8)
    >>> corrupt(image, "brightness", 3, np.random.default_rng(0))[0, 0]
    array([176, 176, 176], dtype=uint8)
    >>> corrupt(image, "rain", 3, np.random.default_rng(0))
    Traceback (most recent call last):
    ValueError: unknown corruption 'rain'; there are: brightness, contrast, ...
    """
    if name not in _CORRUPTIONS:
        raise ValueError(
            f"unknown corruption {name!r}; there are: {', '.join(sorted(_CORRUPTIONS))}"
        )
    if severity not in SEVERITIES:
        raise ValueError(
            f"unknown severity {severity!r}; there are: {', '.join(map(str, SEVERITIES))}"
        )
    _check(image)
    function, small, large = _CORRUPTIONS[name]
    constants = (small if min(image.shape[:2]) <= SMALL else large)[severity - 1]
    return function(np.ascontiguousarray(image), constants, rng)


def _check(image: Any) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        found = image.dtype if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"an image must be an array of uint8, got {found}: convert it first")
    if image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise ValueError(f"an image must be (height, width, 3), got {image.shape}")
