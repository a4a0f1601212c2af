"""timm's classifiers."""

from __future__ import annotations

import math

from dab.data.transform import Transform
from dab.models.libraries import library
from dab.models.sources.common import (
    SQUASHED,
    Pretrained,
    fetching,
    from_origin,
    split_origin,
    unknown,
)

__all__ = ["load"]


def load(name: str) -> Pretrained:
    """Loads `NET` with its default weights, `NET.TAG` with others, or `NET@FILE` with a file.

    The preprocessing is that of the tag; for a file, it is that of the default tag.
    """
    models = library("timm")
    named, origin = split_origin(name)
    net_name, _, tag = named.partition(".")
    if not models.is_model(net_name):
        raise unknown("timm", net_name, models.list_models())
    tags = [full.partition(".")[2] for full in models.list_pretrained(f"{net_name}.*")]
    if tag and tag not in tags:
        raise unknown(f"timm/{net_name}", tag, tags)
    if origin:
        net, card = from_origin(origin, lambda: models.create_model(named))
    elif not models.is_model_pretrained(named):
        raise ValueError(f"timm has no weights of {named}: use your own with timm/{named}@FILE")
    else:
        with fetching(f"timm/{named}", f"use a file with timm/{named}@FILE"):
            net = models.create_model(named, pretrained=True)
        card = {"tag": net.pretrained_cfg["tag"]}
    if not net.num_classes:
        raise ValueError(f"timm/{named} has no classifier: it returns features")
    config = models.data.resolve_model_data_config(net)
    _, crop, width = config["input_size"]
    if crop != width or config["crop_mode"] not in ("center", "squash"):
        raise ValueError(f"timm/{named} requires images other than square crops: {config}")
    if config["crop_mode"] == "squash":
        card["note"] = "; ".join(filter(None, [card.get("note"), SQUASHED]))
    transform = Transform(math.floor(crop / config["crop_pct"]), crop, config["interpolation"])
    card["name"] = f"timm/{net_name}"
    return Pretrained(net, config["mean"], config["std"], transform, card)
