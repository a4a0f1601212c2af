"""Files that are either complete or absent, in a folder or in an object store."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from upath import UPath

__all__ = [
    "Location",
    "aside",
    "found",
    "in_subfolders",
    "is_alive",
    "is_taken",
    "location",
    "read",
    "remove_unfinished",
    "version",
    "write",
]

Location: TypeAlias = "Path | UPath"
"""A folder or file on disk or in an object store (fsspec). Both have the interface of a path."""

# Protocols whose uploads are atomic: a file appears once it is complete.
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")


def location(text: str) -> Location:
    """Parses a path or URL.

    >>> location("results")
    PosixPath('results')
    >>> location("file:///mnt/results")
    PosixPath('/mnt/results')
    >>> location("memory://bucket/results") / "table.md"
    MemoryPath('/bucket/results/table.md', protocol='memory')
    >>> location("file://host/results")
    Traceback (most recent call last):
    ValueError: file://host/results names a host: use file:///FOLDER
    >>> location("ftp://host/results")
    Traceback (most recent call last):
    ValueError: ftp:// can expose half-written files: use a (mounted) folder or a URL of s3, ...
    """
    protocol, separator, path = text.partition("://")
    if not separator:
        return Path(text)
    if protocol == "file":
        if not path.startswith("/"):
            raise ValueError(f"{text} names a host: use file:///FOLDER")
        return Path(path)
    if protocol not in STORES:
        raise ValueError(
            f"{protocol}:// can expose half-written files: use a (mounted) folder or a URL of "
            f"{', '.join(STORES)}"
        )
    from upath import UPath

    try:
        # No cache: what other processes write must be visible immediately.
        there = UPath(text, use_listings_cache=False)
        there.fs  # noqa: B018  # connects
    except ImportError as error:  # every store needs its own package
        raise ValueError(f"{text} cannot be opened: {error}") from error
    return there


def found(folder: Location, pattern: str) -> list[Location]:
    """Returns the paths in a folder that match a pattern, sorted."""
    files: Iterable[Location] = folder.glob(pattern)
    return sorted(files, key=str)


def in_subfolders(folder: Location, name: str) -> list[Location]:
    """Returns the files of this name one level below a folder, sorted.

    A link that leads nowhere counts, as the file or as the folder around it: reading it says so.
    """
    if not isinstance(folder, Path):
        return found(folder, f"*/{name}")
    inner = (one / name for one in folder.iterdir()) if folder.is_dir() else ()
    return sorted(filter(is_taken, inner))


def is_taken(file: Location) -> bool:
    """Whether something has this path, even if it cannot be read."""
    if not isinstance(file, Path):
        return file.exists()
    parent = file.parent
    return os.path.lexists(file) or (parent.is_symlink() and not parent.exists())


@contextmanager
def aside(file: Location) -> Iterator[Path]:
    """Yields a path to write to. It replaces `file` when the block ends, or is removed on an error.

    Processes and threads on one machine that write the same file wait for each other.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "new" / "hello.txt") as unfinished:
    ...     _ = unfinished.write_text("complete")
    >>> (folder / "new" / "hello.txt").read_text()
    'complete'
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
    unfinished, opened = _open_locked(file)
    try:
        yield unfinished
        os.fsync(opened)  # otherwise a power cut may leave the name without the content
        unfinished.replace(file)
    except BaseException as error:
        cause = _write_error(opened, error)
        unfinished.unlink(missing_ok=True)
        if cause is not None and cause.filename is None:
            raise OSError(cause.errno, cause.strerror, str(file)) from error
        raise
    finally:
        os.close(opened)


def _open_locked(file: Path) -> tuple[Path, int]:
    """Opens an empty file beside `file` that no other process writes. Returns path and descriptor.

    All processes on a machine use the same name, so the next writer takes over what a killed one
    left behind: the system releases the locks of a dead process.
    """
    name = f"{file.name}.{socket.gethostname()}"
    unfinished = file.with_name(f"{name}.part")
    while True:
        opened = os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
        except OSError:  # the file system has no locks: use one name per process
            os.close(opened)
            unfinished.unlink(missing_ok=True)
            unfinished = file.with_name(f"{name}.{os.getpid()}.part")
            return unfinished, os.open(unfinished, os.O_RDWR | os.O_CREAT, 0o666)
        if _is_at(opened, unfinished):
            os.ftruncate(opened, 0)
            return unfinished, opened
        os.close(opened)  # its writer finished while this one waited


def _is_at(opened: int, path: Path) -> bool:
    """Whether an open file still has this path: it may have been renamed or removed."""
    try:
        return os.path.samestat(os.fstat(opened), os.stat(path))
    except FileNotFoundError:
        return False


def _write_error(opened: int, error: BaseException) -> OSError | None:
    """Returns the file system's error behind an error of a writer, if there is one.

    Writers may hide it: on a full disk, torch.save reports an "unexpected pos".
    """
    if isinstance(error, OSError):
        return error
    try:
        os.pwrite(opened, bytes(4096), os.fstat(opened).st_size)
    except OSError as refused:
        return refused
    return None


def remove_unfinished(folder: Location) -> None:
    """Removes the half-written files that killed processes on this machine left in a folder."""
    if not isinstance(folder, Path):
        return  # object stores never show them
    for unfinished in folder.glob(f"*.{socket.gethostname()}.part"):
        # Locked files are being written. Files can also disappear when their writer finishes.
        with suppress(OSError), unfinished.open("rb+") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(opened.fileno(), unfinished):
                unfinished.unlink()


def is_alive(process: int) -> bool:
    """Whether a process of this machine is running."""
    if process < 1:
        return False  # the system takes these for groups of processes
    try:
        os.kill(process, 0)
        # A process that is dead, but whose parent has not waited for it, can still be signaled.
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    except FileNotFoundError:
        return True  # a system without /proc
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True


def write(file: Location, content: bytes | str) -> None:
    """Writes a file atomically: readers see the old content or all of the new."""
    with aside(file) as unfinished:
        unfinished.write_bytes(content if isinstance(content, bytes) else content.encode())


def read(file: Location, largest: int | None = None) -> bytes:
    """Reads a regular file. Raises a ValueError if it has more than `largest` bytes.

    Never blocks, unlike `open` on a FIFO.
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
    """Returns a value that changes when a file is written. Files in object stores are final."""
    if not isinstance(file, Path):
        return ()
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
