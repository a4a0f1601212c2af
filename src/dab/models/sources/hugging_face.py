"""Image classifiers of Hugging Face, from the hub or from a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dab.data.images import to_tensor
from dab.data.transform import Interpolation, Transform
from dab.models.checkpoints import misfits
from dab.models.libraries import library
from dab.models.sources.common import SQUASHED, Pretrained, fetching

__all__ = ["load"]

INTERPOLATIONS: Mapping[int, Interpolation] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
NO_CONSTANTS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def load(name: str) -> Pretrained:
    """Loads the net and processor of a name or folder. Code that comes with them is not run."""
    folder = Path(name)
    if "@" in name and not folder.is_dir():
        raise ValueError(f"hf/{name}: save your own weights to a folder and use hf/FOLDER")
    transformers = library("transformers")
    with fetching(f"hf/{name}", "use the folder of a saved model, hf/FOLDER"):
        processor = transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        net, report = transformers.AutoModelForImageClassification.from_pretrained(
            name, trust_remote_code=False, output_loading_info=True, dtype=torch.float32
        )
    _check_complete(f"hf/{name}", net, report)
    if folder.is_dir():
        card = {"name": f"hf/{folder.resolve().name}", "tag": "file", "sha256": _hash(folder)}
    else:
        card = {"name": f"hf/{name}", "tag": net.config._commit_hash}
    mean, std, transform, note = _preprocessing(f"hf/{name}", processor)
    return Pretrained(net, mean, std, transform, card | ({"note": note} if note else {}))


def _check_complete(name: str, net: nn.Module, report: Mapping[str, Any]) -> None:
    """Raises a ValueError if transformers initialized or ignored weights."""
    kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
    if problem := misfits(*(sorted(map(str, report[kind])) for kind in kinds)):
        raise ValueError(f"the weights of {name} do not fit {type(net).__name__}: {problem}")


def _hash(folder: Path) -> str:
    """Returns the checksum of the weights; of all files in order if there are several."""
    digest = hashlib.sha256()
    for file in sorted(f for f in folder.iterdir() if f.suffix in (".safetensors", ".bin")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _preprocessing(
    name: str, processor: Any
) -> tuple[Sequence[float], Sequence[float], Transform, str | None]:
    """Returns mean, std and transform of a processor, and a note if it squeezes images.

    Processors interpret their settings in different ways, so the result is compared with the output
    of the processor.
    """
    settings = processor.to_dict()
    try:
        resize = crop = _side(settings["size"])
        if settings.get("do_center_crop"):
            crop = _side(settings["crop_size"])
        elif "crop_pct" in settings and crop < 384:  # ConvNeXt's
            resize = int(crop / settings["crop_pct"])
        interpolation = INTERPOLATIONS[settings["resample"]]
        mean, std = settings["image_mean"], settings["image_std"]
        if not settings["do_normalize"]:
            mean, std = NO_CONSTANTS
        transform = Transform(resize if settings["do_resize"] else None, crop, interpolation)
        for width, note in ((3 * crop, None), (2 * crop, SQUASHED)):
            if _agrees(processor, transform, mean, std, (2 * crop, width)):
                return mean, std, transform, note
    except LookupError:
        pass  # the settings are not those of a resize, a crop and a normalization
    raise ValueError(
        f"the processor of {name} does more than resize, crop and normalize: {settings}"
    )


def _side(size: Mapping[str, int]) -> int:
    return size["shortest_edge"] if "shortest_edge" in size else size["height"]


def _agrees(
    processor: Any,
    transform: Transform,
    mean: Sequence[float],
    std: Sequence[float],
    shape: tuple[int, int],
) -> bool:
    """Whether an image of this shape is processed equally, to within three of 255 levels."""
    down, across = (np.linspace(0, 255, side) for side in shape)
    ramps = np.broadcast_arrays(down[:, None], across, (down[:, None] + across) / 2)
    picture = np.stack(ramps, axis=2).round().astype(np.uint8)
    expected = processor(images=picture, return_tensors="pt")["pixel_values"][0]
    plain = expected * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]
    found = to_tensor(transform(picture)[None])[0]
    return plain.shape == found.shape and bool((plain - found).abs().max() <= 3 / 255)
