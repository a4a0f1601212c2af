"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import socket
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
    unfinished = file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb+") as written:
            os.fsync(written.fileno())  # or a power cut may leave the name without the content
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what processes of this machine have left in a folder half written when killed."""
    for unfinished in folder.glob(f"*.{socket.gethostname()}.*.part"):
        if not _is_alive(int(unfinished.suffixes[-2][1:])):
            unfinished.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write(file: Path, content: bytes | str) -> None:
    """Write a file such that nobody ever sees half of it."""
    with aside(file) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())
