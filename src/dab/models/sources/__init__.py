"""The sources of pretrained nets: one module each for torchvision, timm, Hugging Face, and ours."""

from collections.abc import Callable, Mapping

from dab.models.sources import hugging_face, own, timm, torchvision
from dab.models.sources.common import Pretrained

__all__ = ["SOURCES", "Pretrained"]

SOURCES: Mapping[str, Callable[[str], Pretrained]] = {
    "torchvision": torchvision.load,
    "timm": timm.load,
    "hf": hugging_face.load,
    "dab": own.load,
}
