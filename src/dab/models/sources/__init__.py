"""The sources of pretrained nets: one module each for torchvision, timm and Hugging Face."""

from collections.abc import Callable, Mapping

from dab.models.sources import hugging_face, timm, torchvision
from dab.models.sources.common import Pretrained

__all__ = ["SOURCES", "Pretrained"]

SOURCES: Mapping[str, Callable[[str], Pretrained]] = {
    "torchvision": torchvision.load,
    "timm": timm.load,
    "hf": hugging_face.load,
}
