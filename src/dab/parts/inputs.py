"""Turns what data loaders return into a batch of float images, or says how to do so."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["InputNotices", "to_images"]

logger = logging.getLogger("dab")


def to_images(batch: Any) -> Any:
    """The images in a batch, as floats.

    Takes a tensor, also of 8-bit pixels; `[images, labels]`, as loaders return; a PIL image, or a
    list of them. Everything else is returned unchanged.

    >>> to_images([torch.full((1, 3, 2, 2), 255, dtype=torch.uint8), torch.tensor([4])]).unique()
    tensor([1.])
    """
    if isinstance(batch, list | tuple):
        if batch and all(map(_is_pil, batch)):
            return _from_pil(batch)
        batch = _first_of_pair(batch)
    if _is_pil(batch):
        return _from_pil([batch])
    if isinstance(batch, Tensor) and batch.dtype == torch.uint8:
        # By a tensor: torch may multiply by the reciprocal of a number, which is not exact.
        return batch.float().div_(torch.tensor(255.0, device=batch.device))
    if isinstance(batch, np.ndarray):
        raise TypeError(
            "images must be a tensor, got a NumPy array: use torch.from_numpy(images), shaped "
            "(n, channels, height, width)"
        )
    return batch


def _first_of_pair(batch: Any) -> Any:
    """The images of [images, labels]."""
    is_pair = 1 <= len(batch) <= 2 and isinstance(batch[0], Tensor) and batch[0].ndim == 4
    if is_pair and not any(isinstance(rest, Tensor) and rest.ndim > 2 for rest in batch[1:]):
        return batch[0]
    raise TypeError(
        f"images must be a tensor or [images, labels], got a {type(batch).__name__} of "
        f"{len(batch)}: join single images with torch.stack(images)"
    )


def _is_pil(value: Any) -> bool:
    pil = sys.modules.get("PIL.Image")  # if it was not imported, no such image exists
    return pil is not None and isinstance(value, pil.Image)


def _from_pil(images: Any) -> Tensor:
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        raise ValueError(f"the images have different sizes, {sorted(sizes)}: resize them first")
    pixels = np.stack([np.asarray(image.convert("RGB")) for image in images])
    converted: Tensor = to_images(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())
    return converted


class InputNotices:
    """Points out, once each, inputs that are legal but probably not what was meant."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def range(self, lowest: float, highest: float) -> None:
        """Pixels that look as if they were not divided by 255."""
        if lowest >= 0 and highest > 2:
            self.once(
                "range",
                "pixels range from %.4g to %.4g: most models expect [0, 1], so divide by 255, or "
                "pass 8-bit (uint8) images",
                lowest,
                highest,
            )

    def storage(self, lowest: float, storage: Any) -> None:
        """Normalized images, which a buffer cannot keep in 8 bits."""
        if lowest < 0 and storage.nbytes and storage.kind == "auto":
            self.once(
                "storage",
                "the images look normalized already, so the buffer cannot keep them in 8 bits and "
                "takes %.0f MB instead of %.0f MB: pass pixels in [0, 1] and normalize inside the "
                "model",
                storage.nbytes / 1e6,
                storage.nbytes / storage.dtype.itemsize / 1e6,
            )

    def once(self, kind: str, message: str, *values: object) -> None:
        """Log a warning, unless one of its kind was logged before."""
        if kind not in self._given:
            self._given.add(kind)
            logger.warning(message, *values)
