"""Imports the optional libraries that models come from."""

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
    """Imports torchvision, timm or transformers. An ImportError names the extra to install.

    torchvision is always imported first, because the others import it too.
    """
    if find_spec(name) is None:
        raise ImportError(f"{name} is not installed: pip install 'dab-tta[{EXTRAS[name]}]'")
    if find_spec("torchvision") is not None:
        _torchvision()
    return importlib.import_module(name)


def _torchvision() -> ModuleType:
    """Imports torchvision, even if its compiled operators do not match the installed torch.

    On import, torchvision registers functions for its operators nms and qnms with torch. That fails
    if the library of compiled operators could not be loaded, as with the default build of
    torchvision and a CPU-only torch. Both are for detection. No classifier calls them, so declaring
    them without an implementation is enough.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise ImportError(f"cannot import torchvision: {error}") from error
        _declare_operators()
        logger.info(
            "the compiled operators of torchvision do not match torch %s: classifiers work, "
            "detection does not",
            torch.__version__,
        )
        return importlib.import_module("torchvision")


@cache  # keeps the library object alive, and with it the declarations
def _declare_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    return library
