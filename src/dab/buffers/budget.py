"""How often a method may update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dab.parts.schema import Integer, Number, take
from dab.parts.transaction import Recorded

__all__ = ["Budget"]


class Budget(Recorded):
    """Limits the average share of calls that update, and saves up for shifts.

    Every call earns `share` of an update. A reserve of RESERVE updates is kept for the start of
    a stream and for shifts, where updates help most: then it is spent as fast as updates are due,
    and saved up again afterward. What is earned beyond the reserve is spent as it comes. So n
    calls make at most RESERVE + share n updates.

    >>> budget = Budget(share=0.25)
    >>> def updates(calls):
    ...     made = 0
    ...     for _ in range(calls):
    ...         budget.earn()
    ...         if budget.affords:
    ...             budget.pay()
    ...             made += 1
    ...     return made
    >>> updates(40), updates(40), updates(40)  # the reserve, nothing while saving, one in four
    (21, 0, 9)
    >>> budget.open(); updates(16)
    16
    """

    RESERVE = 16.0

    def __init__(self, share: float) -> None:
        self.share = share
        self._saved = self.RESERVE
        self._is_open = True  # whether the reserve may be spent

    def open(self) -> None:
        """Allow the reserve to be spent, until nothing is left of it."""
        self._is_open = True

    def earn(self) -> None:
        """To be called once per call."""
        self._saved = min(self._saved + self.share, self.RESERVE + 1)

    @property
    def affords(self) -> bool:
        """Whether an update can be paid for."""
        return self._saved >= (1 if self._is_open else self.RESERVE + 1)

    def pay(self) -> None:
        """Pay for an update."""
        self._saved -= 1
        self._is_open &= self._saved >= 1

    def state_dict(self) -> dict[str, Any]:
        return {"saved": self._saved, "is_open": int(self._is_open)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved, is_open = take(
            state, saved=Number(least=0, most=self.RESERVE + 1), is_open=Integer(below=2)
        )
        self._is_open = bool(is_open)
