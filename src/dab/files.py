"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["aside", "remove_unfinished", "write"]


@contextmanager
def aside(file: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `file` if all goes well, and is removed if not.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "made" / "here.txt") as unfinished:
    ...     _ = unfinished.write_text("whole")
    >>> (folder / "made" / "here.txt").read_text()
    'whole'
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb+") as written:
            os.fsync(written.fileno())  # or a power cut may leave the name without the content
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed processes have left in a folder half written."""
    for unfinished in folder.glob("*.part"):
        unfinished.unlink(missing_ok=True)


def write(file: Path, content: bytes | str) -> None:
    """Write a file such that nobody ever sees half of it."""
    with aside(file) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())
