"""Every image of a data set, decoded to see whether it can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dab.data.datasets.folder import FolderImages
from dab.utils.parallel import each

__all__ = ["unreadable"]

CHUNK = 64  # images that a process takes at once


def unreadable(parts: Sequence[FolderImages], workers: int) -> Iterator[tuple[int, list[str]]]:
    """How many more images have been decoded, and what is wrong with those that cannot be."""
    chunks = [
        (number, range(start, min(start + CHUNK, len(part))))
        for number, part in enumerate(parts)
        for start in range(0, len(part), CHUNK)
    ]
    errors = each(partial(_errors, parts), chunks, workers)
    for (_, indices), found in zip(chunks, errors, strict=True):
        yield len(indices), found


def _errors(parts: Sequence[FolderImages], chunk: tuple[int, range]) -> list[str]:
    number, indices = chunk
    return list(filter(None, (_error(parts[number], index) for index in indices)))


def _error(images: FolderImages, index: int) -> str | None:
    try:
        images.batch([index])
    except (OSError, ValueError) as error:
        return str(error)
    return None
