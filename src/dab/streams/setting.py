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

    def __post_init__(self) -> None:
        if self.shift not in get_args(Shift):
            raise ValueError(f"shift must be one of {get_args(Shift)}, got {self.shift!r}")
        if self.delta is not None:
            orders.check_delta(self.delta)
            if not self.correlated:
                raise ValueError(f"delta={self.delta} has a meaning in correlated settings only")

    @classmethod
    def parse(cls, text: str) -> Setting:
        """The setting of a text: SHIFT, correlated[:DELTA] or SHIFT+correlated[:DELTA]."""
        words, colon, number = text.partition(":")
        if words == "correlated":
            words = "continual+correlated"
        shift, plus, order = words.partition("+")
        try:
            delta = float(number) if colon else None
        except ValueError:
            delta = float("nan")
        known = shift in get_args(Shift) and plus + order in ("", "+correlated")
        if not known or delta != delta:
            raise ValueError(
                f"unknown setting {text!r}; there are: {', '.join(get_args(Shift))}, correlated, "
                "correlated:DELTA, and the first four with +correlated or +correlated:DELTA"
            )
        return cls(cast(Shift, shift), bool(plus), delta)

    def __str__(self) -> str:
        if not self.correlated:
            return self.shift
        # With all digits: two runs are told apart by this text.
        delta = "" if self.delta is None else f":{self.delta}".removesuffix(".0")
        order = f"correlated{delta}"
        return order if self.shift == "continual" else f"{self.shift}+{order}"

    @property
    def description(self) -> str:
        """The setting in words, for reports.

        >>> Setting.parse("correlated").description
        'One domain after another, changes unannounced; all images of a class come in a row.'
        """
        shift = {
            "continual": "One domain after another, changes unannounced",
            "reset_each_shift": "One domain after another; the method is reset at each change",
            "gradual": "One corruption after another, each growing and fading again",
            "mixed": "The images of all domains in random order",
        }[self.shift]
        if not self.correlated:
            return f"{shift}; classes in random order."
        if self.delta is None:
            return f"{shift}; all images of a class come in a row."
        return f"{shift}; images of a class come in bursts (Dirichlet, delta = {self.delta:g})."

    def severities(self, severity: int) -> list[int]:
        """The severities that a corruption goes through: a gradual one grows and fades again.

        >>> Setting("gradual").severities(3)
        [1, 2, 3, 2, 1]
        """
        if self.shift == "gradual":
            return [*range(1, severity), *range(severity, 0, -1)]
        return [severity]

    def order(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """The order of images with these labels."""
        if not self.correlated:
            return orders.shuffled(labels, rng)
        if self.delta is None:
            return orders.correlated(labels, rng)
        return orders.dirichlet(labels, rng, self.delta)
