"""One object from which batches come: in a fixed order, from any position on, made ahead of use."""

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

from dab.data.images import Images, is_ready, to_tensor
from dab.streams.setting import Setting
from dab.streams.shard import Shard
from dab.utils.fingerprint import fingerprint
from dab.utils.parallel import leave_interrupts_to_the_parent

__all__ = ["Batch", "Domain", "Stream"]


class Batch(NamedTuple):
    """What a model is shown at once, and what is known about it."""

    images: Tensor  # (n, 3, height, width) in [0, 1]
    labels: Tensor  # (n,)
    domains: Tensor  # (n,) into the stream's `domains`


@dataclass(frozen=True)
class Domain:
    """Images that look alike, in the parts in which they are shown.

    A domain has one part, or several where it changes on the way: the severities of a corruption
    that grows and fades.
    """

    name: str
    parts: Sequence[Images]


class Stream:
    """Batches of images in the order of a setting and a seed.

    Batches end where a part of a domain ends, so the last one there may be short; only in the
    "mixed" setting a batch has images of several domains.

    Args:
        domains: what to show, in this order.
        setting: how.
        seed: of the order, which is the same on every machine.
        batch_size: images in a batch.
        shard: the piece of the stream that is shown; None for all of it.
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
                raise ValueError(f"domain {domain.name!r} needs a part, and images in each")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.setting, self.seed, self.batch_size = setting, seed, batch_size
        self.domains = tuple(domain.name for domain in domains)
        self._parts = [part for domain in domains for part in domain.parts]
        offsets = np.cumsum([0, *map(len, self._parts)])
        place = self._arranged(offsets)  # of each image of the stream among those of all parts
        if shard is not None:
            place = shard.take(place)
        self._part = np.searchsorted(offsets, place, side="right") - 1
        self._index = place - offsets[self._part]
        self.labels: NDArray[np.int64] = self._all_labels()[place]
        self.domain: NDArray[np.int64] = np.repeat(
            np.arange(len(domains)), [len(domain.parts) for domain in domains]
        )[self._part]
        changes = np.flatnonzero(np.diff(self._part)) + 1
        ends = np.append(changes[:0] if setting.shift == "mixed" else changes, len(place))
        starts = [np.arange(a, b, batch_size) for a, b in pairwise([0, *ends])]
        self._edges = np.append(np.concatenate(starts), ends[-1])  # of the batches

    def _arranged(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.setting.shift == "mixed":
            return self.setting.order(self._all_labels(), np.random.default_rng(self.seed))
        orders = [
            self.setting.order(part.labels, np.random.default_rng([self.seed, number]))
            for number, part in enumerate(self._parts)
        ]
        return np.concatenate([at + order for at, order in zip(offsets, orders, strict=False)])

    def _all_labels(self) -> NDArray[np.int64]:
        return np.concatenate([part.labels for part in self._parts])

    def __len__(self) -> int:
        """The number of batches."""
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
        """A hash of all images that are shown, whatever their order."""
        return fingerprint(*(part.fingerprint for part in self._parts))

    @property
    def ready(self) -> bool:
        """Whether all images only need to be read."""
        return all(map(is_ready, self._parts))

    def position(self, batch: int) -> int:
        """The number of images before a batch."""
        return int(self._edges[batch])

    def is_shift(self, batch: int) -> bool:
        """Whether a batch is the first of its domain, and not of the stream.

        Never in the "mixed" setting, where domains have no first batch.
        """
        start = self._edges[batch]
        if self.setting.shift == "mixed" or not start:
            return False
        return bool(self.domain[start] != self.domain[start - 1])

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0, workers: int = 0, device: str = "cpu") -> Iterator[Batch]:
        """The batches from number `start` on, read ahead by worker processes if there are any.

        Images go to the device as bytes, and are made floats there.
        """
        if not 0 <= start <= len(self):
            raise ValueError(f"the stream has {len(self)} batches, it cannot start at {start}")
        loader = DataLoader(
            _Pixels(self),
            batch_size=None,
            sampler=range(start, len(self)),
            num_workers=workers,
            prefetch_factor=8 if workers else None,
            worker_init_fn=leave_interrupts_to_the_parent if workers else None,
            generator=torch.Generator(),  # or the loader would draw from the global one
        )
        for number, pixels in zip(range(start, len(self)), loader, strict=True):
            if isinstance(pixels, Exception):
                raise pixels
            part = slice(*self._edges[number : number + 2])
            yield Batch(
                to_tensor(pixels.to(device)),
                torch.tensor(self.labels[part]),
                torch.tensor(self.domain[part]),
            )

    def pixels(self, batch: int) -> NDArray[np.uint8]:
        """The images of a batch as bytes (n, height, width, 3)."""
        part = slice(*self._edges[batch : batch + 2])
        sources, indices = self._part[part], self._index[part]
        rows = {source: np.flatnonzero(sources == source) for source in np.unique(sources).tolist()}
        parts = [self._parts[source].batch(indices[row]) for source, row in rows.items()]
        pixels: NDArray[np.uint8] = np.empty((len(sources), *parts[0].shape[1:]), np.uint8)
        for row, images in zip(rows.values(), parts, strict=True):
            pixels[row] = images
        return pixels


class _Pixels(Dataset[Tensor | Exception]):
    """A stream's batches by number, for the loader, which passes tensors on without a copy.

    Errors that speak to the user are passed on too: the loader would wrap them in a worker's
    traceback.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __getitem__(self, batch: int) -> Tensor | Exception:
        try:
            return torch.from_numpy(self.stream.pixels(batch))
        except (OSError, ValueError) as error:
            return error
