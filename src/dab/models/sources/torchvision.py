"""torchvision's classifiers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dab.data.transform import Transform
from dab.models.libraries import library
from dab.models.sources.common import Pretrained, fetching, from_origin, split_origin, unknown

__all__ = ["load"]


def load(name: str) -> Pretrained:
    """Loads `NET` with its default weights, `NET:TAG` with others, or `NET@FILE` with a file.

    The preprocessing is that of the tag; for a file, it is that of the default tag.
    """
    models = library("torchvision").models
    named, origin = split_origin(name)
    net_name, _, tag = named.partition(":")
    if net_name not in (nets := models.list_models(module=models)):
        raise unknown("torchvision", net_name, nets)
    tags = models.get_model_weights(net_name).__members__
    if (tag := tag or "DEFAULT") not in tags:
        raise unknown(f"torchvision/{net_name}", tag, tags)
    entry = tags[tag]
    if origin:
        options = _options(net_name, entry.meta)
        net, card = from_origin(origin, lambda: models.get_model(net_name, **options))
    else:
        with fetching(
            f"torchvision/{named}", f"download {entry.url} and use it with torchvision/{named}@FILE"
        ):
            net, card = models.get_model(net_name, weights=entry), {"tag": entry.name}
    preset = entry.transforms()
    transform = Transform(preset.resize_size[0], preset.crop_size[0], preset.interpolation.value)
    card["name"] = f"torchvision/{net_name}"
    return Pretrained(net, preset.mean, preset.std, transform, card)


def _options(net_name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that torchvision sets only when it loads its own weights."""
    if net_name.startswith("vit_"):
        return {"image_size": meta["min_size"][0]}
    if net_name in ("googlenet", "inception_v3"):  # their weights expect other constants
        return {"transform_input": True, "aux_logits": True, "init_weights": False}
    return {}
