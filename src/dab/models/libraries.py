"""Importing the libraries that models come from: all optional, each with an extra of its own."""

from __future__ import annotations

import importlib
import logging
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch

__all__ = ["library"]

logger = logging.getLogger("dab")

EXTRAS = {"torchvision": "torchvision", "timm": "timm", "transformers": "hf"}


def library(name: str) -> ModuleType:
    """torchvision, timm or transformers; an ImportError that names the extra if it is not there.

    torchvision comes first in any case: the others import it too.
    """
    if find_spec(name) is None:
        raise ImportError(f"{name} is not installed: pip install 'dab-tta[{EXTRAS[name]}]'")
    if find_spec("torchvision") is not None:
        _torchvision()
    return importlib.import_module(name)


def _torchvision() -> ModuleType:
    """torchvision, also where its compiled operators are not built for the installed torch.

    It describes two operators of detection, nms and qnms, to torch while it is imported, which
    fails if its library of operators could not be loaded: so it is with PyPI's build beside a
    CPU-only torch. No classifier calls them, so that their bare schemas are enough.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise ImportError(f"torchvision cannot be imported: {error}") from error
        _schemas()
        logger.info(
            "torchvision's compiled operators do not fit torch %s: classifiers work without them, "
            "detection does not",
            torch.__version__,
        )
        return importlib.import_module("torchvision")


@cache  # the schemas live as long as the library object
def _schemas() -> torch.library.Library:
    schemas = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        schemas.define(schema)  # type: ignore[no-untyped-call]
    return schemas
