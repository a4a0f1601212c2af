"""The models whose weights are shipped with the package."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import torch

from dab.models.vit import StemNorm, ViT
from dab.utils.suggest import unknown

__all__ = ["card", "classes", "load", "names"]


class Shipped(NamedTuple):
    """The expected checksum and the architecture of a shipped model."""

    sha256: str  # printed by the training script
    stem_norm: StemNorm


MODELS: Mapping[str, Shipped] = {
    "cifar10": Shipped("65fa8ff1ee62cc83a5119c629e1410ea16620ac0abcf7a71840597b200373bdb", "pixel"),
    "glyphs": Shipped("4fe1aa4c46291bcf49dba338ee7dfba90314e18e025a06a1b3d31148e4bc07ee", "grid"),
}


def names() -> list[str]:
    """Returns the names of the models."""
    return sorted(MODELS)


def load(name: str) -> ViT:
    """Returns a trained model in eval mode, for [0, 1] images (n, 3, 32, 32).

    >>> import torch
    >>> load("glyphs")(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 100])
    """
    if name not in MODELS:
        raise ValueError(unknown("model", name, names()))
    content = (resources.files("dab.models") / "weights" / f"{name}.safetensors").read_bytes()
    return _model(name, content).eval()


def classes(name: str) -> int:
    """Returns the number of classes of a model."""
    return load(name).head.out_features


def card(name: str) -> dict[str, Any]:
    """Returns the card that identifies a model."""
    model = load(name)
    return {
        "name": f"dab/{name}",
        "preprocessing": {
            "mean": model.mean.flatten().tolist(),
            "std": model.std.flatten().tolist(),
        },
    }


def _model(name: str, content: bytes) -> ViT:
    from safetensors.torch import load as read

    known, found = MODELS[name], hashlib.sha256(content).hexdigest()
    if found != known.sha256:
        raise ValueError(
            f"the weights of {name!r} are damaged (checksum {found}, expected {known.sha256}): "
            "reinstall the package"
        )
    weights = {key: half.float() for key, half in read(content).items()}
    with torch.device("meta"):  # no random initialization: the global generator is not changed
        model = ViT(classes=len(weights["head.bias"]), stem_norm=known.stem_norm)
    model.load_state_dict(weights, assign=True)
    return model
