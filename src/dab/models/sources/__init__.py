"""Where nets come from: a module each for torchvision, timm and Hugging Face."""

from collections.abc import Callable, Mapping

from dab.models.sources import hugging_face, timm, torchvision
from dab.models.sources.parts import Parts

__all__ = ["SOURCES", "Parts"]

SOURCES: Mapping[str, Callable[[str], Parts]] = {
    "torchvision": torchvision.parts,
    "timm": timm.parts,
    "hf": hugging_face.parts,
}
