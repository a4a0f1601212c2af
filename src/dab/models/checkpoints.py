"""Weights from files: reads tensors only, and requires that they fit the net exactly."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Checkpoint", "fill", "misfits", "read"]

TORCH_FILES = (".pth", ".pt", ".bin")
WRAPPERS = ("state_dict", "model")  # keys under which training scripts store weights
PARALLEL = "module."  # prefix of (Distributed)DataParallel


class Checkpoint(NamedTuple):
    """Weights by name, and the checksum of the file that they were read from."""

    weights: dict[str, Tensor]
    sha256: str


def read(file: Path) -> Checkpoint:
    """Reads the weights in a .safetensors file or a torch checkpoint, on the CPU."""
    if file.suffix not in (".safetensors", *TORCH_FILES):
        known = ", ".join((*TORCH_FILES, ".safetensors"))
        raise ValueError(f"{file} is not a file of weights: its name must end in one of {known}")
    content = file.read_bytes()
    try:
        loaded = _loaded(content, file.suffix)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{file} is damaged, or contains objects that could run code: save "
            f"model.state_dict() alone ({str(error).splitlines()[0]})"
        ) from error
    except Exception as error:  # each format raises its own errors for damaged files
        raise ValueError(f"cannot read {file}, it may be damaged: {error}") from error
    return Checkpoint(_weights(loaded, file), hashlib.sha256(content).hexdigest())


def fill(net: nn.Module, weights: Mapping[str, Tensor], source: object) -> None:
    """Loads weights into a net, or raises one ValueError with all that does not fit.

    Only BatchNorm's batch counters may be missing, as in files that predate them: nothing is
    computed from them.
    """
    own = net.state_dict()
    missing = [n for n in own if n not in weights and not n.endswith(".num_batches_tracked")]
    unexpected = [name for name in weights if name not in own]
    shapes = [
        f"{name} {tuple(weights[name].shape)} for {tuple(value.shape)}"
        for name, value in own.items()
        if name in weights and weights[name].shape != value.shape
    ]
    if problem := misfits(missing, unexpected, shapes):
        raise ValueError(f"{source} does not fit {type(net).__name__}: {problem}")
    net.load_state_dict(weights, strict=False)


def misfits(missing: Sequence[str], unexpected: Sequence[str], shapes: Sequence[str]) -> str:
    """Describes in one line what does not fit; empty if all fits.

    >>> misfits(["head.bias"], [], [f"blocks.{i}" for i in range(9)])
    '1 missing (head.bias); 9 with another shape (blocks.0, blocks.1, blocks.2, blocks.3, ...)'
    """
    kinds = {"missing": missing, "unexpected": unexpected, "with another shape": shapes}
    return "; ".join(
        f"{len(names)} {kind} ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
        for kind, names in kinds.items()
        if names
    )


def _loaded(content: bytes, suffix: str) -> Any:
    if suffix == ".safetensors":
        from safetensors.torch import load

        return load(content)
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _weights(loaded: Any, file: Path) -> dict[str, Tensor]:
    while isinstance(loaded, Mapping):
        inner = [loaded[key] for key in WRAPPERS if isinstance(loaded.get(key), Mapping)]
        if not inner:
            break
        loaded = inner[0]
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(f"{file} must contain weights by name, got {type(loaded).__name__}")
    others = [str(key) for key, value in loaded.items() if not isinstance(value, Tensor)]
    if others:
        raise ValueError(f"{file} contains more than weights: {', '.join(others[:4])}")
    parallel = all(str(key).startswith(PARALLEL) for key in loaded)
    return {str(k).removeprefix(PARALLEL if parallel else ""): v for k, v in loaded.items()}
