"""Files that are there whole or not at all, in a folder or in an object store."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from upath import UPath

__all__ = [
    "Location",
    "aside",
    "found",
    "is_alive",
    "location",
    "read",
    "remove_unfinished",
    "version",
    "write",
]

Location: TypeAlias = "Path | UPath"
"""A folder or file on disk, or one that fsspec reaches: both are used like paths."""

FULL = (errno.ENOSPC, errno.EDQUOT)

# Where a file is seen when all of it has come, and never before.
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")


def location(text: str) -> Location:
    """The folder or file that a path or URL names.

    >>> location("results")
    PosixPath('results')
    >>> location("file:///mnt/results")
    PosixPath('/mnt/results')
    >>> location("memory://bucket/results") / "table.md"
    MemoryPath('/bucket/results/table.md', protocol='memory')
    >>> location("file://host/results")
    Traceback (most recent call last):
    ValueError: file://host/results names a host: give file:///FOLDER
    >>> location("ftp://host/results")
    Traceback (most recent call last):
    ValueError: ftp:// may show half a file: give a folder, mounted if need be, or a URL of s3, ...
    """
    protocol, separator, path = text.partition("://")
    if not separator:
        return Path(text)
    if protocol == "file":
        if not path.startswith("/"):
            raise ValueError(f"{text} names a host: give file:///FOLDER")
        return Path(path)
    if protocol not in STORES:
        raise ValueError(
            f"{protocol}:// may show half a file: give a folder, mounted if need be, or a URL of "
            f"{', '.join(STORES)}"
        )
    from upath import UPath

    try:
        # What others write is to be seen at once.
        there = UPath(text, use_listings_cache=False)
        there.fs  # noqa: B018  # is made here
    except ImportError as error:  # each store has a package of its own
        raise ValueError(f"{text} cannot be reached: {error}") from error
    return there


def found(folder: Location, pattern: str) -> list[Location]:
    """What there is of a pattern in a folder, in the order of its names."""
    files: Iterable[Location] = folder.glob(pattern)
    return sorted(files, key=str)


@contextmanager
def aside(file: Location) -> Iterator[Path]:
    """A path to write to, which takes the place of `file` if all goes well, and is removed if not.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "made" / "here.txt") as unfinished:
    ...     _ = unfinished.write_text("whole")
    >>> (folder / "made" / "here.txt").read_text()
    'whole'
    """
    if isinstance(file, Path):
        with _beside(file) as unfinished:
            yield unfinished
        return
    with TemporaryDirectory(prefix="dab-") as folder:
        unfinished = Path(folder) / file.name
        yield unfinished
        file.fs.pipe_file(file.path, unfinished.read_bytes())


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        yield unfinished
        with unfinished.open("rb+") as written:
            os.fsync(written.fileno())  # or a power cut may leave the name without the content
        unfinished.replace(file)
    except OSError as error:
        if error.errno in FULL:  # says neither where, nor what to do
            message = f"no space left on device for {file.name}: free some, or choose another disk"
            raise OSError(error.errno, message, str(file.parent)) from error
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished(folder: Location) -> None:
    """Remove what processes of this machine have left in a folder half written when killed."""
    if not isinstance(folder, Path):
        return  # nothing is half written there
    for unfinished in folder.glob(f"*.{socket.gethostname()}.*.part"):
        if not is_alive(int(unfinished.suffixes[-2][1:])):
            unfinished.unlink(missing_ok=True)


def is_alive(process: int) -> bool:
    """Whether a process of this machine is running."""
    try:
        os.kill(process, 0)
        # One that was killed, but whose parent has not asked for it yet, can still be signalled.
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    except FileNotFoundError:
        return True  # a system without /proc
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def write(file: Location, content: bytes | str) -> None:
    """Write a file such that nobody ever sees half of it."""
    with aside(file) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())


def read(file: Location, largest: int | None = None) -> bytes:
    """The content of a regular file, of at most so many bytes if given; else a `ValueError`.

    Never waits, as a plain `open` would for a FIFO.
    """
    if not isinstance(file, Path):
        if largest is not None and file.stat().st_size > largest:
            raise ValueError(f"more than {largest:,} bytes")
        return bytes(file.read_bytes())
    with open(
        file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)
    ) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if largest is not None and status.st_size > largest:
            raise ValueError(f"more than {largest:,} bytes")
        return opened.read()


def version(file: Location) -> tuple[int, ...]:
    """Changes whenever a file is written. In a store files are final: asking would be slow."""
    if not isinstance(file, Path):
        return ()
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
