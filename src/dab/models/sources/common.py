"""Shared by the sources of pretrained nets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from dab.data.transform import Transform
from dab.models.checkpoints import fill, read

__all__ = ["SQUASHED", "Pretrained", "fetching", "from_origin", "split_origin", "unknown"]

SEED = 0  # of random weights
SQUASHED = "the published preprocessing squeezes images to a square; here they are cropped"


class Pretrained(NamedTuple):
    """A pretrained net with its normalization, preprocessing and identity."""

    net: nn.Module
    mean: Sequence[float]
    std: Sequence[float]
    transform: Transform
    card: dict[str, Any]


def split_origin(name: str) -> tuple[str, str | None]:
    """Splits `NET[:TAG]@FILE` in two. Without an @, the file is None.

    >>> split_origin("vit_b_16@weights.pth"), split_origin("vit_b_16")
    (('vit_b_16', 'weights.pth'), ('vit_b_16', None))
    """
    named, at, origin = name.partition("@")
    if (at and not origin) or named.endswith((":", ".")):
        raise ValueError(f"{name!r} ends without the name of a file or tag")
    return named, origin if at else None


def from_origin(origin: str, build: Callable[[], nn.Module]) -> tuple[nn.Module, dict[str, Any]]:
    """Builds a net with the weights of a file, or with random weights if origin is "random"."""
    if origin != "random":
        weights, sha256 = read(Path(origin))
        fill(net := build(), weights, origin)
        return net, {"tag": "file", "sha256": sha256}
    torch.default_generator.manual_seed(SEED)  # `load_model` restores the generator
    net = build()
    for layer in net.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            layer.reset_parameters()  # a zero head would predict the same for all images
    return net, {"tag": f"random, seed {SEED}", "note": "random weights: for timing only"}


@contextmanager
def fetching(name: str, instead: str) -> Iterator[None]:
    """Turns errors of a download into an OSError that says what to do instead."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # no network, no such repository, a broken download
        raise OSError(f"cannot download the weights of {name} ({error}): {instead}") from error


def unknown(where: str, name: str, known: Iterable[str]) -> ValueError:
    """Returns an error with similar names."""
    names = sorted(known)
    close = get_close_matches(name, names, n=5) or names
    more = ", ..." if len(close) > 8 else ""
    return ValueError(f"{where} has no {name!r}; it has {', '.join(close[:8]) or 'none'}{more}")
