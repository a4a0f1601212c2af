"""Which images both models predict, within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dab.parts.functional import evenly_spaced
from dab.parts.schema import Number, take
from dab.parts.transaction import Recorded

__all__ = ["Probe"]

LEARNED = 2  # what a call that learns costs at least, in forward passes; others cost one
REGULAR, CLOSE, BACK = 0.5, 0.25, 0.25  # how the budget is divided
MORE = 10  # times the disagreement is added to the budget, relative to what it is without any
FEWEST = 8  # images in a forward pass, if a call has them: smaller ones cost more per image
SAVED = 1024.0  # images that close looks can save up, at most; available from the start


class Probe(Recorded):
    """Chooses images to compare: a few regularly, whole calls for a close look, and old ones.

    Args:
        share: of the forward passes that the method itself makes, for all of these together. Where
            the models disagree, it is more: the added error is at most the disagreement, so looks
            are worth most there.

    >>> probe = Probe(0.1)
    >>> [len(probe.choose(64, learned=False, close=False)) for _ in range(6)]
    [0, 0, 9, 0, 0, 10]
    >>> len(probe.choose(64, learned=False, close=True))
    64
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._regular = self._back = 0.0
        self._close = SAVED
        self.disagreement = 0.0  # recent share of images that the two models disagree on

    def choose(self, images: int, learned: bool, close: bool) -> Tensor:
        """Positions in a call of so many images: all for a close look that can be afforded."""
        earned = self.share * images * (LEARNED if learned else 1)
        earned *= 1 + MORE * self.disagreement
        self._regular += REGULAR * earned
        self._back += BACK * earned
        self._close = min(SAVED, self._close + CLOSE * earned)
        if close and self.affords(images):
            self._close -= images
            return torch.arange(images)
        count = min(images, int(self._regular))
        if count < min(images, FEWEST):
            return torch.arange(0)
        self._regular -= count
        return evenly_spaced(count, images)

    def looks_back(self, images: int, close: bool) -> bool:
        """Whether to predict so many old images again, at once for a close look."""
        if close and self.affords(images):
            self._close -= images
            return True
        if self._back < images:
            return False
        self._back = 0.0
        return True

    def affords(self, images: int) -> bool:
        """Whether a close look at so many images is affordable."""
        return self._close >= min(SAVED, images)

    @property
    def ample(self) -> bool:
        """Whether there is more than the half of the savings that is kept for doubts."""
        return self._close > SAVED / 2

    def refill(self) -> None:
        """Allow as many close looks as possible: something has happened."""
        self._close = SAVED

    def state_dict(self) -> dict[str, float]:
        return {
            "regular": self._regular,
            "close": self._close,
            "back": self._back,
            "disagreement": self.disagreement,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = Number(least=0)
        self._regular, self._close, self._back, self.disagreement = take(
            state, regular=number, close=Number(), back=number, disagreement=Number(0, 1)
        )
