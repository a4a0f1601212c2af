"""A data set under a corruption, computed when first read and cached on disk."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import PIL
import scipy  # type: ignore[import-untyped]
from numpy.typing import NDArray

from dab.data import corruptions
from dab.data.cache import Cache, cache_folder
from dab.data.corruptions import corrupt
from dab.data.images import Images, Indices, tracks_of
from dab.utils.fingerprint import fingerprint

__all__ = ["CorruptedImages"]


@cache
def _version() -> str:
    """A hash of the code of the corruptions and of the versions of the libraries it uses."""
    sources = sorted(Path(corruptions.__file__).parent.glob("*.py"))
    libraries = [module.__version__ for module in (np, scipy, cv2, PIL)]
    return fingerprint(*(source.read_text() for source in sources), " ".join(libraries))


class CorruptedImages:
    """The images of a data set under one corruption at one severity.

    The randomness of an image depends on corruption, severity and index alone, so its bytes depend
    neither on the order of reading nor on the number of workers.

    Args:
        clean: the images to corrupt.
        corruption, severity: see `dab.data.corruptions.corrupt`.
        cache: folder for the corrupted images; None for the default, `cache_folder()`.
    """

    def __init__(
        self, clean: Images, corruption: str, severity: int, cache: Path | None = None
    ) -> None:
        self.clean, self.corruption, self.severity = clean, corruption, severity
        self.labels: NDArray[np.int64] = clean.labels
        self.tracks = tracks_of(clean)
        probe = self._corrupted(0, clean.batch([0])[0])  # raises if name or severity is unknown
        self.fingerprint = fingerprint(
            clean.fingerprint, corruption, f"{severity} {_version()}", probe
        )
        name = f"{corruption}-{severity}-{self.fingerprint}"
        self.cache = Cache((cache or cache_folder()) / name, (len(clean), *probe.shape))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> NDArray[np.uint8]:
        """Returns the corrupted images at these indices, stacked."""
        return self.cache.read(np.asarray(indices, np.int64), self._make)

    def ready(self, size: int | None = None) -> bool:
        """Whether the first `size` images (None: all) are cached."""
        return self.cache.complete(size)

    def _make(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        clean = self.clean.batch(indices)
        return np.stack(list(map(self._corrupted, indices.tolist(), clean)))

    def _corrupted(self, index: int, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        seed = [zlib.crc32(self.corruption.encode()), self.severity, index]
        return corrupt(image, self.corruption, self.severity, np.random.default_rng(seed))
