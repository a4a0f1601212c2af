"""A stream of batches: in a fixed order, from any position, prefetched by workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dab.data.images import Images, is_ready, to_tensor, tracks_of
from dab.streams.setting import Setting
from dab.streams.shard import Shard
from dab.utils.fingerprint import fingerprint
from dab.utils.parallel import leave_interrupts_to_the_parent

__all__ = ["Batch", "Domain", "Stream"]


class Batch(NamedTuple):
    """The images that a model is shown at once.

    With a sliding window (`Setting.window`), the last ones are new and the others are shown again.
    """

    images: Tensor  # (n, 3, height, width) in [0, 1]
    labels: Tensor  # (n,)
    domains: Tensor  # (n,) indices into the stream's `domains`


@dataclass(frozen=True)
class Domain:
    """Images of one kind, such as one corruption.

    A domain that changes over time has several parts, such as the severities of a corruption that
    rises and falls.
    """

    name: str
    parts: Sequence[Images]


class Stream:
    """Batches of images in the order of a setting and a seed.

    A batch ends where a part of a domain ends, so the last batch of a part may be smaller. Only
    the "mixed" setting has new images of several domains in one batch. In the "drive" setting, all
    parts must have the same images, and the stream takes one stretch of its images from each part.

    Args:
        domains: what to show, in this order.
        setting: how to show it.
        seed: of the order, which is the same on every machine.
        batch_size: the number of new images per batch.
        shard: shows only this piece of the stream; None shows all.
    """

    def __init__(
        self,
        domains: Sequence[Domain],
        setting: Setting,
        seed: int = 0,
        batch_size: int = 64,
        shard: Shard | None = None,
    ) -> None:
        if not domains:
            raise ValueError("a stream needs at least one domain")
        for domain in domains:
            if not (domain.parts and all(map(len, domain.parts))):
                raise ValueError(f"domain {domain.name!r} must have images in every part")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if setting.window is not None and setting.window < batch_size:
            raise ValueError(f"batch_size={batch_size} exceeds the window of {setting.window}")
        self.setting, self.seed, self.batch_size = setting, seed, batch_size
        self.domains = tuple(domain.name for domain in domains)
        self._parts = [part for domain in domains for part in domain.parts]
        offsets = np.cumsum([0, *map(len, self._parts)])
        place = self._arranged(offsets)  # indices into the images of all parts
        if shard is not None:
            place = shard.take(place)
        self._part = np.searchsorted(offsets, place, side="right") - 1
        self._index = place - offsets[self._part]
        self.labels: NDArray[np.int64] = self._all_labels()[place]
        tracks = self._all_tracks()
        self.tracks: NDArray[np.int64] | None = None if tracks is None else tracks[place]
        self.domain: NDArray[np.int64] = np.repeat(
            np.arange(len(domains)), [len(domain.parts) for domain in domains]
        )[self._part]
        self._shifts = np.append(0, np.flatnonzero(np.diff(self.domain)) + 1)
        changes = np.flatnonzero(np.diff(self._part)) + 1
        ends = np.append(changes[:0] if setting.shift == "mixed" else changes, len(place))
        starts = [np.arange(a, b, batch_size) for a, b in pairwise([0, *ends])]
        self._edges = np.append(np.concatenate(starts), ends[-1])  # of the batches' new images

    def _arranged(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        order, parts = self.setting.order, self._parts
        if self.setting.shift == "mixed":
            rng = np.random.default_rng(self.seed)
            return order(self._all_labels(), self._all_tracks(), rng)
        if self.setting.shift == "drive":
            rng = np.random.default_rng(self.seed)
            whole = order(self._same_labels(), tracks_of(parts[0]), rng)
            pieces = np.array_split(whole, len(parts))
        else:
            pieces = [
                order(part.labels, tracks_of(part), np.random.default_rng([self.seed, number]))
                for number, part in enumerate(parts)
            ]
        return np.concatenate([at + piece for at, piece in zip(offsets, pieces, strict=False)])

    def _same_labels(self) -> NDArray[np.int64]:
        """Returns the labels that all parts have in common."""
        labels = self._parts[0].labels
        if not all(np.array_equal(labels, part.labels) for part in self._parts):
            raise ValueError(f"the setting {self.setting} needs the same images in all domains")
        if len(labels) < len(self._parts):
            raise ValueError(
                f"the setting {self.setting} divides the images into {len(self._parts)} parts, "
                f"but there are only {len(labels)} images"
            )
        return labels

    def _all_labels(self) -> NDArray[np.int64]:
        return np.concatenate([part.labels for part in self._parts])

    def _all_tracks(self) -> NDArray[np.int64] | None:
        """Returns the track of each image of all parts, or None if any part has no tracks.

        A track that is shown under several domains is one video in each, unless it drives through.
        """
        tracks = [each for each in map(tracks_of, self._parts) if each is not None]
        if len(tracks) < len(self._parts):
            return None
        numbered = [np.unique(each, return_inverse=True)[1] for each in tracks]
        if self.setting.shift == "drive":
            return np.concatenate(numbered)
        first = np.cumsum([0, *(each.max() + 1 for each in numbered)])
        return np.concatenate([at + each for at, each in zip(first, numbered, strict=False)])

    def __len__(self) -> int:
        """Returns the number of batches."""
        return len(self._edges) - 1

    @property
    def samples(self) -> int:
        """The number of images."""
        return len(self.labels)

    @property
    def parts(self) -> Sequence[Images]:
        """The images of all domains, in their order."""
        return self._parts

    @property
    def fingerprint(self) -> str:
        """A hash of all images, independent of their order."""
        return fingerprint(*(part.fingerprint for part in self._parts))

    @property
    def ready(self) -> bool:
        """Whether all images can be read without computation."""
        return all(map(is_ready, self._parts))

    def position(self, batch: int) -> int:
        """Returns the number of new images in all batches before this one."""
        return int(self._edges[batch])

    def is_shift(self, batch: int) -> bool:
        """Whether the domain changes with this batch. Never true in the "mixed" setting."""
        start = self._edges[batch]
        if self.setting.shift == "mixed" or not start:
            return False
        return bool(self.domain[start] != self.domain[start - 1])

    def _first(self, batch: int) -> int:
        """Returns the index of the first image that a batch shows."""
        start, end = self._edges[batch : batch + 2].tolist()
        if self.setting.window is None:
            return int(start)
        oldest = 0
        if self.setting.shift == "reset_each_shift":
            oldest = self._shifts[np.searchsorted(self._shifts, start, side="right") - 1]
        return int(max(oldest, end - self.setting.window))

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0, workers: int = 0, device: str = "cpu") -> Iterator[Batch]:
        """Yields the batches from number `start`, read ahead by worker processes.

        Images move to the device as bytes and are converted to floats there.
        """
        if not 0 <= start <= len(self):
            raise ValueError(f"cannot start at batch {start}: the stream has {len(self)} batches")
        loader = DataLoader(
            _Pixels(self),
            batch_size=None,
            sampler=range(start, len(self)),
            num_workers=workers,
            prefetch_factor=8 if workers else None,
            worker_init_fn=leave_interrupts_to_the_parent if workers else None,
            generator=torch.Generator(),  # otherwise the loader draws from the global one
        )
        window: Tensor | None = None
        for number, pixels in zip(range(start, len(self)), loader, strict=True):
            if isinstance(pixels, Exception):
                raise pixels
            shown = slice(self._first(number), self.position(number + 1))
            pixels = pixels.to(device)
            again = self.position(number) - shown.start
            if again:
                if window is None:
                    earlier = slice(shown.start, self.position(number))
                    window = torch.from_numpy(self._read(earlier)).to(device)
                pixels = torch.cat([window[len(window) - again :], pixels])
            window = pixels
            yield Batch(
                to_tensor(pixels),
                torch.tensor(self.labels[shown]),
                torch.tensor(self.domain[shown]),
            )

    def pixels(self, batch: int) -> NDArray[np.uint8]:
        """Returns the new images of a batch as bytes (n, height, width, 3)."""
        return self._read(slice(*self._edges[batch : batch + 2]))

    def _read(self, images: slice) -> NDArray[np.uint8]:
        sources, indices = self._part[images], self._index[images]
        rows = {source: np.flatnonzero(sources == source) for source in np.unique(sources).tolist()}
        parts = [self._parts[source].batch(indices[row]) for source, row in rows.items()]
        pixels: NDArray[np.uint8] = np.empty((len(sources), *parts[0].shape[1:]), np.uint8)
        for row, read in zip(rows.values(), parts, strict=True):
            pixels[row] = read
        return pixels


class _Pixels(Dataset[Tensor | Exception]):
    """The new images of each batch, for the loader.

    Errors meant for the user are returned: the loader would wrap them in a worker's traceback.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __getitem__(self, batch: int) -> Tensor | Exception:
        try:
            return torch.from_numpy(self.stream.pixels(batch))
        except (OSError, ValueError) as error:
            return error
