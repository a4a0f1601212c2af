"""How domains follow each other, how classes follow each other, and what is shown at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dab.streams import orders
from dab.utils.suggest import unknown

__all__ = ["SYNTAX", "Setting", "Shift"]

Shift = Literal["continual", "reset_each_shift", "gradual", "mixed"]

SYNTAX = (
    f"correlated[:DELTA], {', '.join(get_args(Shift))}; each of the last {len(get_args(Shift))} "
    "also with +correlated[:DELTA], and all also with +window:N"
)


@dataclass(frozen=True)
class Setting:
    """The setting of a stream, written as on the command line.

    Args:
        shift: "continual": one domain after the other, without notice; "reset_each_shift": the
            same, but the adapter is reset at every change of domain; "gradual": each corruption
            rises from severity 1 to 5 and falls again; "mixed": all domains shuffled together.
        correlated: sort images by class instead of shuffling them.
        delta: of the Dirichlet distribution that draws how long the runs of a class are; None
            sorts completely.
        window: the number of images that the model is shown at once: the new ones of a batch and,
            before them, the latest earlier ones again. Only the predictions for the new ones
            count. With "reset_each_shift", a window never includes images of the previous domain.
            None shows the new images alone.

    >>> Setting.parse("correlated")
    Setting(shift='continual', correlated=True, delta=None, window=None)
    >>> Setting.parse("mixed+correlated:0.1")
    Setting(shift='mixed', correlated=True, delta=0.1, window=None)
    >>> Setting.parse("correlated+window:16").window
    16
    >>> str(Setting.parse("continual+correlated"))
    'correlated'
    """

    shift: Shift = "continual"
    correlated: bool = False
    delta: float | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if self.shift not in get_args(Shift):
            raise ValueError(f"shift must be one of {get_args(Shift)}, got {self.shift!r}")
        if self.delta is not None:
            orders.check_delta(self.delta)
            if not self.correlated:
                raise ValueError(f"delta={self.delta} requires a correlated setting")
        if self.window is not None and self.window < 2:
            raise ValueError(f"window must be at least 2 images, got {self.window}")

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Parses SHIFT, correlated[:DELTA] or SHIFT+correlated[:DELTA], each with [+window:N]."""
        match = re.fullmatch(r"(.*)\+window:(\d+)", text)
        rest, window = (match[1], int(match[2])) if match else (text, None)
        words, colon, number = rest.partition(":")
        if words == "correlated":
            words = "continual+correlated"
        shift, plus, order = words.partition("+")
        try:
            delta = float(number) if colon else None
        except ValueError:
            delta = float("nan")
        known = shift in get_args(Shift) and plus + order in ("", "+correlated")
        if not known or delta != delta:
            names = [*get_args(Shift), "correlated"]
            raise ValueError(f"{unknown('setting', text, names)}. A setting is {SYNTAX}")
        return cls(cast(Shift, shift), bool(plus), delta, window)

    def __str__(self) -> str:
        text: str = self.shift
        if self.correlated:
            # With all digits, because results are identified by this text.
            delta = "" if self.delta is None else f":{self.delta}".removesuffix(".0")
            text = f"correlated{delta}" if text == "continual" else f"{text}+correlated{delta}"
        return text if self.window is None else f"{text}+window:{self.window}"

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
        """Returns the severities of a corruption in order: a gradual one rises and falls again.

        >>> Setting("gradual").severities(3)
        [1, 2, 3, 2, 1]
        """
        if self.shift == "gradual":
            return [*range(1, severity), *range(severity, 0, -1)]
        return [severity]

    def order(self, labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the order in which images with these labels are shown."""
        if not self.correlated:
            return orders.shuffled(labels, rng)
        if self.delta is None:
            return orders.correlated(labels, rng)
        return orders.dirichlet(labels, rng, self.delta)
