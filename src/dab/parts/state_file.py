"""What a state may contain, its checksum, and files of states."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dab.utils import files

__all__ = [
    "check_leaves",
    "checksum",
    "leaves",
    "load_file",
    "same_state",
    "save_file",
    "weights_fingerprint",
]

_DEPTH = 16


def leaves(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Everything in a nested state that is not a container itself, by its path."""
    if depth > _DEPTH:
        raise ValueError(f"it is nested deeper than {_DEPTH} levels")
    if isinstance(value, Mapping):
        yield f"{path}{{{len(value)}", None
        for key in sorted(value, key=str):
            if not isinstance(key, str):
                raise ValueError(f"{path} has a key that is not a string: {key!r}")
            yield from leaves(value[key], f"{path}/{key}", depth + 1)
    elif isinstance(value, list | tuple):
        yield f"{path}{type(value).__name__}{len(value)}", None
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}/{number}", depth + 1)
    else:
        yield path, value


def check_leaves(state: Any) -> None:
    """Refuse what no state has: other types, other layouts, sizes without content, NaN."""
    for path, value in leaves(state):
        if isinstance(value, Tensor):
            _check_tensor(path, value)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{path} is {value}")
        elif type(value) is int:
            if not -(2**63) <= value < 2**63:
                raise ValueError(f"{path} is beyond 64 bits")
        elif value is not None and type(value) not in (bool, str):
            raise ValueError(f"{path} is a {type(value).__name__}")


def _check_tensor(path: str, tensor: Tensor) -> None:
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.layout != torch.strided:
        raise ValueError(f"{path} is not a plain dense tensor")
    if tensor.is_meta or tensor.is_quantized or tensor.is_complex():
        raise ValueError(f"{path} has an unsupported dtype")
    # A small file can declare a huge tensor whose rows all share one storage.
    if not tensor.is_contiguous() and tensor.untyped_storage().nbytes() < tensor.nbytes:
        raise ValueError(f"{path} declares more numbers than it holds")
    if tensor.is_floating_point() and tensor.numel():
        extremes = torch.aminmax(tensor.detach())
        if not all(math.isfinite(extreme) for extreme in extremes):
            raise ValueError(f"{path} has numbers that are not finite")


def checksum(state: Any) -> str:
    """A hash over all paths, types and numbers of a state."""
    digest = hashlib.sha256()
    for path, value in leaves(state):
        digest.update(path.encode())
        if isinstance(value, Tensor):
            _update(digest, value)
        else:
            digest.update(f"{type(value).__name__}{value!r}".encode())
    return digest.hexdigest()


def weights_fingerprint(tensors: Iterable[Tensor]) -> str:
    """A hash over numbers, whatever their names."""
    digest = hashlib.sha256()
    for tensor in tensors:
        _update(digest, tensor)
    return digest.hexdigest()


def _update(digest: Any, tensor: Tensor) -> None:
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(plain.view(torch.uint8).numpy().data)


def same_state(a: Any, b: Any) -> bool:
    """Whether two states hold the same numbers in the same types."""
    return checksum(a) == checksum(b)


def save_file(state: Mapping[str, Any], path: str | PathLike[str]) -> None:
    """Write a state atomically."""
    with files.aside(_location(path)) as unfinished:
        torch.save(state, unfinished)


def load_file(path: str | PathLike[str]) -> Any:
    """Read a state; runs no code from the file, and maps it instead of copying it."""
    file = _location(path)
    if not file.is_file():
        raise FileNotFoundError(f"state file {file} does not exist")
    try:
        if isinstance(file, Path):
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        content = io.BytesIO(file.read_bytes())
        return torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # torch fails in many ways on what is not its own
        raise ValueError(f"{file} is not a file written by save(), or is damaged") from error


def _location(path: str | PathLike[str]) -> files.Location:
    return files.location(path) if isinstance(path, str) else Path(path)
