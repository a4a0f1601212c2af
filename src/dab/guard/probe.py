"""Which images the source model predicts too, within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dab.parts.schema import Number, take
from dab.parts.transaction import Recorded

__all__ = ["Probe"]

FEWEST = 4  # images in a forward pass, if a call has them: smaller ones cost more per image
CLOSE = 0.5  # what close looks may cost on average, as a share of what regular ones cost
SAVED = 1024.0  # images that close looks can save up, at most; available from the start


class Probe(Recorded):
    """Chooses images to compare: a few of them regularly, and whole calls for a close look.

    Args:
        share: of all images that are compared regularly.

    >>> probe = Probe(0.05)
    >>> [len(probe.choose(64, close=False)) for _ in range(4)]
    [0, 6, 0, 6]
    >>> len(probe.choose(64, close=True))
    64
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._regular, self._close = 0.0, SAVED

    def choose(self, images: int, close: bool) -> Tensor:
        """Positions in a call of so many images: all for a close look that can be afforded."""
        self._regular += self.share * images
        self._close = min(SAVED, self._close + CLOSE * self.share * images)
        if close and self._close >= images:
            self._close -= images
            return torch.arange(images)
        count = min(images, int(self._regular))
        if count < min(images, FEWEST):
            return torch.arange(0)
        self._regular -= count
        return ((torch.arange(count) + 0.5) * (images / count)).long()

    def refill(self) -> None:
        """Allow as many close looks as possible: something has happened."""
        self._close = SAVED

    def state_dict(self) -> dict[str, float]:
        return {"regular": self._regular, "close": self._close}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = Number(least=0)
        self._regular, self._close = take(state, regular=number, close=number)
