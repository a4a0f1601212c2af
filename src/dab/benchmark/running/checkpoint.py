"""A run's checkpoint: bound to the run by its id, and to its content by a checksum.

The file is one line of JSON (format, run id, SHA-256 of the rest), then what `torch.save`
writes. Only the exact line that belongs to the run and the content is accepted.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Mapping
from typing import IO, Any, cast

import torch

from dab.benchmark.results.identity import FORMAT, FormatError, RunCard
from dab.utils import files
from dab.utils.files import Location
from dab.utils.typed_json import canonical, parse

__all__ = ["CHECKPOINT", "load_checkpoint", "save_checkpoint"]

logger = logging.getLogger("dab")

CHECKPOINT = "checkpoint.pt"


def save_checkpoint(folder: Location, card: RunCard, state: Mapping[str, Any]) -> None:
    """Replace the checkpoint in a run's folder."""
    with files.aside(folder / CHECKPOINT) as unfinished, unfinished.open("wb") as file:
        file.write(_header(card, "0" * 64))  # as long as the real one
        content = _Hashed(file)
        torch.save(dict(state), cast(IO[bytes], content))
        file.seek(0)
        file.write(_header(card, content.digest()))


def load_checkpoint(folder: Location, card: RunCard) -> dict[str, Any] | None:
    """The state in a run's checkpoint; None without one, or, with a warning, if it is unusable."""
    file = folder / CHECKPOINT
    if not file.exists():
        return None
    try:
        header, newline, content = files.read(file).partition(b"\n")
        expected = _header(card, hashlib.sha256(content).hexdigest())
        if header + newline != expected:
            _explain(header, card)
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError("it does not hold a state")
        return state
    except Exception as error:  # torch.load fails in many ways
        refuse_checkpoint(folder, error)
        return None


def refuse_checkpoint(folder: Location, error: Exception) -> None:
    """Warn that a run starts over."""
    logger.warning("%s is not usable, so the run starts over: %s", folder / CHECKPOINT, error)


def _header(card: RunCard, checksum: str) -> bytes:
    content = {"format": FORMAT, "run_id": card.run_id, "sha256": checksum}
    return f"{canonical(content)}\n".encode()


def _explain(header: bytes, card: RunCard) -> None:
    """Say why a header is not the expected one."""
    if header.startswith(b"PK"):  # format 1 was a bare archive
        raise FormatError("written by an older version of dab")
    try:
        found = parse(header)
    except ValueError:
        raise ValueError("its header is damaged") from None
    if isinstance(found, dict) and found.get("run_id") not in (card.run_id, None):
        raise ValueError(f"it belongs to run {found['run_id']}")
    raise ValueError("its content does not match its checksum")


class _Hashed(io.RawIOBase):
    """Passes what is written on to a file, and hashes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return self._file.write(content)

    def digest(self) -> str:
        return self._hash.hexdigest()
