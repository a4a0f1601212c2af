"""The files of streams in a folder or object store."""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import Any
from urllib.parse import unquote_to_bytes

from dab.parts import state_file
from dab.utils import files

__all__ = ["Shelf", "check_id"]

LONGEST = 160  # characters; writing appends the name of the machine, and most systems allow 255
PLAIN = re.compile(rb"[a-z0-9_-]")


def check_id(stream: Any) -> str:
    """Refuse what cannot be the id of a stream.

    >>> check_id(7)
    Traceback (most recent call last):
    TypeError: a stream's id is a string, got an int: 7
    """
    if not isinstance(stream, str):
        kind = type(stream).__name__
        article = "an" if kind[0] in "aeiou" else "a"
        raise TypeError(f"a stream's id is a string, got {article} {kind}: {stream!r:.60}")
    try:
        length = len(file_name(stream))
    except UnicodeEncodeError as error:
        raise ValueError(f"the id {stream!r:.60} is not valid Unicode") from error
    if not stream or length > LONGEST:
        raise ValueError(
            f"the id {stream!r:.60} is {'too long' if stream else 'empty'}: it takes {length} "
            f"characters in a file name, where everything but a-z, 0-9, - and _ takes three per "
            f"byte, and may take 1 to {LONGEST}"
        )
    return stream


def file_name(stream: str) -> str:
    """The id as a file name without its ending, different for different ids on any file system.

    >>> file_name("cam-1"), file_name("Cam 1"), file_name("../etc")
    ('cam-1', '%43am%201', '%2e%2e%2fetc')
    """
    parts = (bytes([byte]) for byte in stream.encode())
    return "".join(p.decode() if PLAIN.match(p) else f"%{p[0]:02x}" for p in parts)


class Shelf:
    """A folder with one file for each stream, written by `Adapter.save` or in the same format."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = files.location(fspath(folder))
        files.remove_unfinished(self.folder)

    def file(self, stream: str) -> files.Location:
        return self.folder / f"{file_name(stream)}.pt"

    def ids(self) -> list[str]:
        """The streams that have a file, sorted."""
        stems = [file.name.removesuffix(".pt") for file in files.found(self.folder, "*.pt")]
        ids = [unquote_to_bytes(stem).decode(errors="replace") for stem in stems]
        # A file that somebody else put there is not one of a stream.
        return sorted(i for i, stem in zip(ids, stems, strict=True) if i and file_name(i) == stem)

    def __contains__(self, stream: str) -> bool:
        return self.file(stream).is_file()

    def write(self, stream: str, state: Any) -> None:
        """Write a file; it is complete or absent."""
        state_file.save_file(state, str(self.file(stream)))

    def read(self, stream: str) -> Any:
        return state_file.load_file(str(self.file(stream)))

    def remove(self, stream: str) -> None:
        """Remove a file, if there is one."""
        if stream in self:
            self.file(stream).unlink()
