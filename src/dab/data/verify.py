"""Verifies that every image of a data set can be decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from dab.data.datasets.folder import FolderImages
from dab.utils.parallel import each

__all__ = ["unreadable"]

CHUNK = 64  # images per work item


def unreadable(parts: Sequence[FolderImages], workers: int) -> Iterator[tuple[int, list[str]]]:
    """Yields, chunk by chunk, the number of images and the errors of those that are unreadable."""
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
