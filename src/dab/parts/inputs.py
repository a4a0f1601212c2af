"""Turns what data loaders return into a batch of float images, or says how to do so."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["InputNotices", "to_images"]

logger = logging.getLogger("dab")


def to_images(batch: Any) -> Any:
    """The images in a batch, as floats.

    Takes a tensor, 8-bit ones included; a PIL image, or a list of them; and what loaders give:
    `(images, labels, ...)`, or a dictionary with "image", "images" or "pixel_values". Everything
    else is returned as it is.

    >>> to_images([torch.full((1, 3, 2, 2), 255, dtype=torch.uint8), torch.tensor([4])]).unique()
    tensor([1.])
    """
    if isinstance(batch, Mapping):
        batch = _under_its_key(batch)
    if isinstance(batch, list | tuple) and not _is_pil_list(batch):
        batch = _first(batch)
    if _is_pil_list(batch):
        return _from_pil(batch)
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


def _under_its_key(batch: Mapping[Any, Any]) -> Any:
    """The images of a dictionary."""
    found = [key for key in ("image", "images", "pixel_values") if key in batch]
    if len(found) != 1:
        raise TypeError(
            f"images must be a tensor, got a dictionary with {list(map(str, batch))}: pass the "
            "entry that holds the images"
        )
    return batch[found[0]]


def _first(batch: Any) -> Any:
    """The images of (images, labels, ...)."""
    if batch and (_is_pil_list(batch[0]) or (isinstance(batch[0], Tensor) and batch[0].ndim == 4)):
        if not any(isinstance(rest, Tensor) and rest.ndim > 2 for rest in batch[1:]):
            return batch[0]
        raise TypeError(
            "images must be a tensor or (images, labels, ...), got several tensors that could be "
            "images: pass one of them"
        )
    raise TypeError(
        f"images must be a tensor or (images, labels, ...), got a {type(batch).__name__} of "
        f"{len(batch)}: join single images with torch.stack(images)"
    )


def _is_pil_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_pil, value))


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

    def storage(self, images: Tensor, storage: Any) -> None:
        """Normalized images, which a buffer cannot keep in 8 bits."""
        if "storage" in self._given or storage.kind != "auto":
            return
        if storage.dtype not in (None, torch.uint8) and images.min() < 0:
            self.once(
                "storage",
                "the images look normalized already, so the buffer cannot keep them in 8 bits and "
                "takes %s instead of %s: pass pixels in [0, 1] and normalize inside the "
                "model",
                _size(storage.nbytes),
                _size(storage.nbytes / storage.dtype.itemsize),
            )

    def once(self, kind: str, message: str, *values: object) -> None:
        """Log a warning, unless one of its kind was logged before."""
        if kind not in self._given:
            self._given.add(kind)
            logger.warning(message, *values)


def _size(count: float) -> str:
    """A number of bytes for people.

    >>> _size(2_466_250_752), _size(616_562_688), _size(192_000)
    ('2.5 GB', '617 MB', '192 kB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.1f} {unit}" if count < 10 else f"{count:.0f} {unit}"
