"""How domains follow each other, and how classes do within them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dab.streams import orders

__all__ = ["Setting", "Shift"]

Shift = Literal["continual", "reset_each_shift", "gradual", "mixed"]


@dataclass(frozen=True)
class Setting:
    """A stream's setting, written as on the command line.

    Args:
        shift: "continual": one domain after the other, and nobody says when; "reset_each_shift":
            the same, but the adapter is reset at every change; "gradual": each corruption grows
            from severity 1 to 5 and fades again; "mixed": all domains shuffled into each other.
        correlated: classes come one after the other instead of shuffled.
        delta: of the Dirichlet distribution that draws the runs of a class; None sorts fully.

    >>> Setting.parse("correlated")
    Setting(shift='continual', correlated=True, delta=None)
    >>> Setting.parse("mixed+correlated:0.1")
    Setting(shift='mixed', correlated=True, delta=0.1)
    >>> str(Setting.parse("continual+correlated"))
    'correlated'
    """

    shift: Shift = "continual"
    correlated: bool = False
    delta: float | None = None

    @classmethod
    def parse(cls, text: str) -> Setting:
        """The setting of a text: SHIFT, correlated[:DELTA] or SHIFT+correlated[:DELTA]."""
        shift, _, order = text.partition("+")
        if not order and shift.partition(":")[0] == "correlated":
            shift, order = "continual", shift
        word, colon, number = order.partition(":")
        try:
            delta = float(number) if colon else None
        except ValueError:
            delta = float("nan")
        if shift not in get_args(Shift) or word not in ("", "correlated") or delta != delta:
            raise ValueError(
                f"unknown setting {text!r}; there are: {', '.join(get_args(Shift))}, correlated, "
                "correlated:DELTA, and the first four with +correlated or +correlated:DELTA"
            )
        return cls(cast(Shift, shift), bool(order), delta)

    def __str__(self) -> str:
        if not self.correlated:
            return self.shift
        order = "correlated" if self.delta is None else f"correlated:{self.delta:g}"
        return order if self.shift == "continual" else f"{self.shift}+{order}"

    def order(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """The order of images with these labels."""
        if not self.correlated:
            return orders.shuffled(labels, rng)
        if self.delta is None:
            return orders.correlated(labels, rng)
        return orders.dirichlet(labels, rng, self.delta)
