"""Loads trained classifiers by name, with their preprocessing and identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dab.data.transform import Transform
from dab.models.classifier import Classifier
from dab.models.sources import SOURCES, Pretrained
from dab.utils.fingerprint import fingerprint
from dab.utils.imports import import_own

__all__ = ["Loaded", "load_model"]

FORMS = (
    "torchvision/NET, timm/NET, hf/NAME, dab/NET@FILE, package.module:function or "
    "path/to/file.py:function"
)
NO_CONSTANTS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class Loaded(NamedTuple):
    """A classifier of [0, 1] images, its preprocessing, and a card that identifies it."""

    model: nn.Module
    transform: Transform
    card: dict[str, Any]


def load_model(name: str, *, classes: Sequence[int] | None = None) -> Loaded:
    """Loads a trained classifier in eval mode.

    Args:
        name: `torchvision/NET[:TAG]`, `timm/NET[.TAG]` or `hf/NAME` for published weights. The
            first two also with `@FILE` for weights in a file, or `@random` for random weights, to
            measure speed. `hf/FOLDER` for a saved model. `dab/resnet26_gn@FILE` and
            `dab/gtsrb_convnet@FILE` for nets whose weights are not shipped.
            `package.module:function` or
            `path/to/file.py:function` for a function that returns a model for [0, 1] images, or
            (model, Transform), or (model, Transform, card).
        classes: the indices of the logits to return, in this order; None returns all.

    A model that is not available is an error: nothing else is loaded instead. The global random
    generator is not changed.

    >>> model, transform, card = load_model("dab.models.lite0:load", classes=range(200))
    >>> model(torch.rand(1, 3, 224, 224)).shape
    torch.Size([1, 200])
    >>> transform
    Transform(resize=256, crop=224, interpolation='bicubic')
    """
    source, _, rest = name.partition("/")
    with torch.random.fork_rng(devices=[]):
        if source in SOURCES:
            net, mean, std, transform, own_card = SOURCES[source](rest)
        elif ":" in name:
            net, mean, std, transform, own_card = _called(name)
        else:
            raise ValueError(f"{name!r} does not name a model; use one of {FORMS}")
    model = Classifier(net, mean, std).eval()
    count = _count(name, model, transform)
    card = {
        "preprocessing": {"mean": list(mean), "std": list(std), **asdict(transform)},
        "classes": count,
        **own_card,
    }
    if classes is not None:
        if max(classes, default=0) >= count:
            raise ValueError(f"{name} has {count} classes, but classes includes {max(classes)}")
        model = Classifier(net, mean, std, classes).eval()
        card |= {"classes": len(classes), "selection": fingerprint(np.array(classes))}
    return Loaded(model, transform, card)


def _called(name: str) -> Pretrained:
    """Calls the user's own function."""
    module, _, function = name.rpartition(":")
    make = getattr(import_own(module), function, None)
    if not callable(make):
        raise ValueError(f"{module} has no function {function!r}")
    made = make()
    given = made if isinstance(made, tuple) else (made,)
    model, transform, card = (*given, *(None, Transform(), {})[len(given) :])[:3]
    if (
        len(given) > 3
        or not isinstance(model, nn.Module)
        or not isinstance(transform, Transform)
        or not isinstance(card, dict)
    ):
        kinds = ", ".join(type(part).__name__ for part in given)
        raise ValueError(
            f"{name} must return a model, (model, Transform) or (model, Transform, dict), got "
            f"({kinds})"
        )
    # The model normalizes its input itself.
    card = {"name": name, "preprocessing": asdict(transform), **card}
    return Pretrained(model, *NO_CONSTANTS, transform, card)


def _count(name: str, model: nn.Module, transform: Transform) -> int:
    """Returns the number of classes, found by classifying a blank image."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    blank = torch.zeros(1, 3, transform.crop, transform.crop, device=device)
    try:
        with torch.no_grad():
            return int(model(blank).shape[1])
    except Exception as error:  # models raise all kinds of errors
        side = transform.crop
        raise ValueError(
            f"{name} cannot classify an image of {side} x {side} pixels: {error}"
        ) from error
