"""Errors that name what is wrong with an input or an output, raised before anything changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["check_images", "check_names", "logits_of"]


def check_images(images: Any, like: Tensor | None) -> tuple[float, float]:
    """Refuse what is not a batch of finite images like those so far; the extreme pixels.

    `like` is an empty batch with the shape and dtype of the stream so far.

    >>> check_images(torch.zeros(3, 8, 8), None)
    Traceback (most recent call last):
    ValueError: images must be (n, channels, height, width), got (3, 8, 8): use images[None] ...
    """
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor, got {type(images).__name__}")
    if images.is_meta:
        raise ValueError("images are on the meta device, without pixels")
    if images.ndim != 4:
        hint = ": use images[None] for a single image" if images.ndim == 3 else ""
        raise ValueError(
            f"images must be (n, channels, height, width), got {tuple(images.shape)}{hint}"
        )
    if images.numel() == 0:
        raise ValueError(f"the batch is empty: its shape is {tuple(images.shape)}")
    if not images.is_floating_point():
        raise ValueError(
            f"images must be floats or uint8, got {images.dtype}: use images.float() / 255 for "
            "8-bit pixels"
        )
    if like is not None and (images.shape[1:] != like.shape[1:] or images.dtype != like.dtype):
        raise ValueError(
            f"images are {images.dtype} of shape {tuple(images.shape[1:])}, the stream so far is "
            f"{like.dtype} of {tuple(like.shape[1:])}: call reset() before a new stream"
        )
    # The extremes carry every NaN and infinity, in one pass and without a mask of all pixels.
    lowest, highest = (extreme.item() for extreme in torch.aminmax(images))
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        bad = (~torch.isfinite(images).flatten(1).all(dim=1)).nonzero().flatten().tolist()
        raise ValueError(f"samples {bad} of the batch have NaN or infinite pixels")
    return lowest, highest


def check_names(found: Any, expected: Collection[str]) -> None:
    """Refuse what does not have the expected names, and only these.

    >>> check_names({"a": 1, "c": 2}, ["a", "b"])
    Traceback (most recent call last):
    ValueError: missing: b; unexpected: c
    """
    if not isinstance(found, Mapping):
        raise ValueError(f"expected a dictionary, got a {type(found).__name__}")
    missing, unexpected = set(expected) - set(found), set(found) - set(expected)
    parts = [
        f"{kind}: {', '.join(sorted(map(str, names))[:5])}{', ...' if len(names) > 5 else ''}"
        for kind, names in (("missing", missing), ("unexpected", unexpected))
        if names
    ]
    if parts:
        raise ValueError("; ".join(parts))


def logits_of(output: Any, samples: int, classes: int | None) -> Tensor:
    """The logits in a model's output.

    That is the output itself, its `logits` (an attribute or a key), or the first of a tuple, if
    nothing else in it could be logits.

    >>> logits_of({"logits": torch.zeros(2, 10), "loss": None}, 2, None).shape
    torch.Size([2, 10])
    """
    logits = output
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif isinstance(output, tuple | list) and output and not hasattr(output, "logits"):
        logits = output[0]
        rows = [x for x in output if isinstance(x, Tensor) and x.ndim == 2 and len(x) == samples]
        if len(rows) > 1:
            raise ValueError(
                f"the model returns several tensors that could be logits, of shapes "
                f"{[tuple(x.shape) for x in rows]}: wrap it so that it returns the logits alone, "
                'or under the key "logits"'
            )
    elif not isinstance(output, Tensor):
        logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != samples:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise ValueError(
            f"the model must return ({samples}, classes) logits, got {got}: wrap it so that it "
            'returns the logits alone, or under the key "logits"'
        )
    if logits.shape[1] < 2:
        raise ValueError("the model returns a single class: there is nothing to adapt to")
    if classes is not None and logits.shape[1] != classes:
        raise ValueError(
            f"the model returns {logits.shape[1]} classes, the stream so far has {classes}: "
            "call reset() before a new stream"
        )
    return logits
