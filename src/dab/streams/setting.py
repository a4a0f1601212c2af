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

Shift = Literal["continual", "reset_each_shift", "gradual", "drive", "mixed"]

SYNTAX = (
    f"correlated[:DELTA], tracks, {', '.join(get_args(Shift))}; each of the last "
    f"{len(get_args(Shift))} also with +correlated[:DELTA] or +tracks, and all also with +window:N"
)


@dataclass(frozen=True)
class Setting:
    """The setting of a stream, written as on the command line.

    Args:
        shift: "continual": one domain after the other, without notice; "reset_each_shift": the
            same, but the adapter is reset at every change of domain; "gradual": each corruption
            rises from severity 1 to 5 and falls again; "drive": the same from clean images on, but
            every image is shown once, under what it happens to meet; "mixed": all domains shuffled
            together.
        correlated: sort images by class instead of shuffling them.
        delta: of the Dirichlet distribution that draws how long the runs of a class are; None
            sorts completely.
        window: the number of images that the model is shown at once: the new ones of a batch and,
            before them, the latest earlier ones again. Only the predictions for the new ones
            count. With "reset_each_shift", a window never includes images of the previous domain.
            None shows the new images alone.
        tracks: of data that are videos: shuffle the tracks and show the images of each in their
            order, instead of shuffling images.

    >>> Setting.parse("correlated")
    Setting(shift='continual', correlated=True, delta=None, window=None, tracks=False)
    >>> Setting.parse("mixed+correlated:0.1").delta
    0.1
    >>> Setting.parse("drive+tracks")
    Setting(shift='drive', correlated=False, delta=None, window=None, tracks=True)
    >>> Setting.parse("correlated+window:16").window
    16
    >>> str(Setting.parse("continual+correlated"))
    'correlated'
    """

    shift: Shift = "continual"
    correlated: bool = False
    delta: float | None = None
    window: int | None = None
    tracks: bool = False

    def __post_init__(self) -> None:
        if self.shift not in get_args(Shift):
            raise ValueError(f"shift must be one of {get_args(Shift)}, got {self.shift!r}")
        if self.delta is not None:
            orders.check_delta(self.delta)
            if not self.correlated:
                raise ValueError(f"delta={self.delta} requires a correlated setting")
        if self.correlated and self.tracks:
            raise ValueError("images are sorted by class or by track: choose correlated or tracks")
        if self.window is not None and self.window < 2:
            raise ValueError(f"window must be at least 2 images, got {self.window}")

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Parses SHIFT, ORDER or SHIFT+ORDER, each with [+window:N].

        ORDER is correlated[:DELTA] or tracks.
        """
        match = re.fullmatch(r"(.*)\+window:(\d+)", text)
        rest, window = (match[1], int(match[2])) if match else (text, None)
        words, colon, number = rest.partition(":")
        if words in ("correlated", "tracks"):
            words = f"continual+{words}"
        shift, plus, order = words.partition("+")
        try:
            delta = float(number) if colon else None
        except ValueError:
            delta = float("nan")
        known = shift in get_args(Shift) and plus + order in ("", "+correlated", "+tracks")
        if not known or delta != delta:
            names = [*get_args(Shift), "correlated", "tracks"]
            raise ValueError(f"{unknown('setting', text, names)}. A setting is {SYNTAX}")
        return cls(cast(Shift, shift), order == "correlated", delta, window, order == "tracks")

    def __str__(self) -> str:
        words: list[str] = [self.shift]
        if self.correlated:
            # With all digits, because results are identified by this text.
            delta = "" if self.delta is None else f":{self.delta}".removesuffix(".0")
            words.append(f"correlated{delta}")
        if self.tracks:
            words.append("tracks")
        if len(words) == 2 and self.shift == "continual":
            del words[0]
        if self.window is not None:
            words.append(f"window:{self.window}")
        return "+".join(words)

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
            "drive": "Every image once, while one corruption after another grows and fades",
            "mixed": "The images of all domains in random order",
        }[self.shift]
        if self.tracks:
            return f"{shift}; tracks in random order, the images of a track in theirs."
        if not self.correlated:
            return f"{shift}; classes in random order."
        if self.delta is None:
            return f"{shift}; all images of a class come in a row."
        return f"{shift}; images of a class come in bursts (Dirichlet, delta = {self.delta:g})."

    def severities(self, severity: int) -> list[int]:
        """Returns the severities of a corruption in order: a gradual one rises and falls again.

        >>> Setting("gradual").severities(3)
        [1, 2, 3, 2, 1]
        >>> Setting("drive").severities(3)  # 0 is clean
        [0, 1, 2, 3, 2, 1]
        """
        if self.shift in ("gradual", "drive"):
            first = 0 if self.shift == "drive" else 1
            return [*range(first, severity), *range(severity, 0, -1)]
        return [severity]

    def showings(self, domains: int, severity: int) -> int:
        """Returns how often each image of a data set is shown.

        >>> Setting("gradual").showings(domains=15, severity=3), Setting("drive").showings(15, 3)
        (75, 1)
        """
        return 1 if self.shift == "drive" else domains * len(self.severities(severity))

    def order(
        self,
        labels: NDArray[np.int64],
        tracks: NDArray[np.int64] | None,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Returns the order in which images with these labels are shown."""
        if self.tracks:
            if tracks is None:
                raise ValueError(f"the setting {self} is for videos: these images have no tracks")
            return orders.by_track(tracks, rng)
        if not self.correlated:
            return orders.shuffled(labels, rng)
        if self.delta is None:
            return orders.correlated(labels, rng)
        return orders.dirichlet(labels, rng, self.delta)
