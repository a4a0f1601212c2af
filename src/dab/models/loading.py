"""Trained classifiers by name: with their preprocessing, and a card that tells them apart."""

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

FORMS = "torchvision/NET, timm/NET, hf/NAME, package.module:function or path/to/file.py:function"
NO_CONSTANTS = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class Loaded(NamedTuple):
    """A classifier of plain [0, 1] images, what makes such images, and what it is."""

    model: nn.Module
    transform: Transform
    card: dict[str, Any]


def load_model(name: str, *, classes: Sequence[int] | None = None) -> Loaded:
    """A trained classifier in eval mode.

    Args:
        name: `torchvision/NET[:TAG]`, `timm/NET[.TAG]` or `hf/NAME` for published weights;
            the first two with `@FILE` for those of a file, or `@random` for none, to measure times
            with; `hf/FOLDER`; or `package.module:function` or `path/to/file.py:function` for a
            function that returns a model for [0, 1] images, alone or with its `Transform`, or with
            both its `Transform` and a card.
        classes: the logits to keep, in this order, by index; None keeps all.

    What cannot be had is an error: no other library and no other weights take its place. The
    global random generator is left as it was.

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
            raise ValueError(f"{name!r} names no model; there are: {FORMS}")
    model = Classifier(net, mean, std).eval()
    count = _count(name, model, transform)
    card = {
        "preprocessing": {"mean": list(mean), "std": list(std), **asdict(transform)},
        "classes": count,
        **own_card,
    }
    if classes is not None:
        if max(classes, default=0) >= count:
            raise ValueError(f"{name} has {count} classes, there is no {max(classes)} among them")
        model = Classifier(net, mean, std, classes).eval()
        card |= {"classes": len(classes), "selection": fingerprint(np.array(classes))}
    return Loaded(model, transform, card)


def _called(name: str) -> Pretrained:
    """What a function of the user's own returns."""
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
            f"{name} must return a model, or (model, Transform), or (model, Transform, card as a "
            f"dict), it returns ({kinds})"
        )
    # The constants are the model's own affair.
    card = {"name": name, "preprocessing": asdict(transform), **card}
    return Pretrained(model, *NO_CONSTANTS, transform, card)


def _count(name: str, model: nn.Module, transform: Transform) -> int:
    """The number of classes, by asking for those of a blank picture."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    blank = torch.zeros(1, 3, transform.crop, transform.crop, device=device)
    try:
        with torch.no_grad():
            return int(model(blank).shape[1])
    except Exception as error:  # models refuse images in ways of their own
        side = transform.crop
        raise ValueError(
            f"{name} cannot classify a picture of {side} x {side} pixels: {error}"
        ) from error
