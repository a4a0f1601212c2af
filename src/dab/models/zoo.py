"""The shipped weights of the embedded benchmarks' models."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

import torch

from dab.models.vit import ViT

__all__ = ["card", "load", "names"]

# What the training scripts print at their end.
SHA256 = {
    "cifar10": "12fe8af601637b3a3e4da9469cbb54cd6da58cacd54fbcf591f777e1cd7ba239",
    "glyphs": "b0307b3474af11f3e21aaaf1820a8c3cf01f2964ba189af5a59c90b7002d00b2",
}


def names() -> list[str]:
    """The models that `load` knows."""
    return sorted(SHA256)


def load(name: str) -> ViT:
    """A trained model in eval mode, for plain [0, 1] images (n, 3, 32, 32).

    >>> import torch
    >>> load("glyphs")(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 100])
    """
    if name not in SHA256:
        raise ValueError(f"unknown model {name!r}; there are: {', '.join(names())}")
    content = (resources.files("dab.models") / "weights" / f"{name}.safetensors").read_bytes()
    return _model(name, content).eval()


def card(name: str) -> dict[str, Any]:
    """What tells a model from all others."""
    model = load(name)
    return {
        "name": f"dab/{name}",
        "weights": SHA256[name],
        "preprocessing": {
            "mean": model.mean.flatten().tolist(),
            "std": model.std.flatten().tolist(),
        },
    }


def _model(name: str, content: bytes) -> ViT:
    from safetensors.torch import load as read

    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"the weights of {name!r} have the checksum {found}, not {SHA256[name]}: "
            "the file is damaged, install the package again"
        )
    weights = {key: half.float() for key, half in read(content).items()}
    with torch.device("meta"):  # no random weights first: the global generator stays as it is
        model = ViT(classes=len(weights["head.bias"]))
    model.load_state_dict(weights, assign=True)
    return model
