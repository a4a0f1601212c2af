"""What the sources have in common."""

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

SEED = 0  # of untrained weights
SQUASHED = "the published preprocessing squashes pictures to a square, here they are cropped"


class Pretrained(NamedTuple):
    """What a classifier is made of, and what its card is to say."""

    net: nn.Module
    mean: Sequence[float]
    std: Sequence[float]
    transform: Transform
    card: dict[str, Any]


def split_origin(name: str) -> tuple[str, str | None]:
    """`NET[:TAG]@FILE` in two; without an @ there is no file.

    >>> split_origin("vit_b_16@weights.pth"), split_origin("vit_b_16")
    (('vit_b_16', 'weights.pth'), ('vit_b_16', None))
    """
    named, at, origin = name.partition("@")
    if (at and not origin) or named.endswith((":", ".")):
        raise ValueError(f"{name!r} ends where a file or tag should be named")
    return named, origin if at else None


def from_origin(origin: str, build: Callable[[], nn.Module]) -> tuple[nn.Module, dict[str, Any]]:
    """A net with the weights of a file, or, called "random", with none to speak of."""
    if origin != "random":
        weights, sha256 = read(Path(origin))
        fill(net := build(), weights, origin)
        return net, {"tag": "file", "sha256": sha256}
    torch.default_generator.manual_seed(SEED)  # `load_model` puts the generator back
    net = build()
    for layer in net.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():
            layer.reset_parameters()  # a head that starts at zero would call all pictures the same
    return net, {"tag": f"random, seed {SEED}", "note": "untrained: for timing only"}


@contextmanager
def fetching(name: str, instead: str) -> Iterator[None]:
    """Says what else to do where weights are not to be had: there is no falling back."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # no network, no such repository, a broken download
        raise OSError(f"cannot get the weights of {name} ({error}): {instead}") from error


def unknown(where: str, name: str, known: Iterable[str]) -> ValueError:
    """An error with the names that come close."""
    names = sorted(known)
    close = get_close_matches(name, names, n=5) or names
    more = ", ..." if len(close) > 8 else ""
    return ValueError(f"{where} has no {name!r}, but {', '.join(close[:8]) or 'nothing'}{more}")
