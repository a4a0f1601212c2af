"""The shifted test sets of ImageNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dab.benchmark.tasks.on_disk import DEFAULT_MODEL, DEFAULT_TAG, OnDisk, OnDiskTask
from dab.benchmark.tasks.registry import TaskRecipe, register_task
from dab.benchmark.tasks.task import check_classes, refuse_clean
from dab.data.datasets import imagenet
from dab.data.datasets.imagenet_classes import WNIDS
from dab.data.transform import Transform
from dab.streams import Setting
from dab.utils.fingerprint import fingerprint

if TYPE_CHECKING:
    from dab.benchmark.cell import Cell

__all__ = ["ImageNetC", "ImageNetCTask", "ImageNetTask"]

PAPER_SHA256 = "c867db91"  # of the weights of the default tag; the file is vit_b_16-c867db91.pth
PAPER_PREPROCESSING = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    **asdict(Transform(resize=256, crop=224, interpolation="bilinear")),
}
ROBUSTBENCH_LIST = "40a66a48c5235472"  # fingerprint of the 5,000 names, sorted


class ImageNetTask(OnDiskTask):
    """A test set of ImageNet with domains of its own."""

    published: ClassVar[Sequence[int]]  # images per domain, as published

    def kept_classes(self, data: OnDisk, model: str, classes: int) -> tuple[int, ...] | None:
        check_classes(model, classes, "ImageNet", len(WNIDS))
        return data.found().classes

    def count(self, cell: Cell, recipe: TaskRecipe) -> int | None:
        """The published images; None if a folder is given, which may have fewer."""
        return None if recipe.root is not None else _limited(self.published, recipe.samples)

    def published_as(self, recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
        """The column of the paper's tables, if data, weights and preprocessing are the paper's."""
        paper_weights = card.get("tag") == DEFAULT_TAG or card.get("sha256", "").startswith(
            PAPER_SHA256
        )
        is_paper = (
            card["name"] == DEFAULT_MODEL
            and paper_weights
            and card["preprocessing"] == PAPER_PREPROCESSING
            and recipe.samples is None
            and not recipe.partial
        )
        return self.name.replace("-", "_") if is_paper else None


@register_task("imagenet-r")
class ImageNetRTask(ImageNetTask):
    """ImageNet-R: renditions, 200 classes."""

    images = imagenet.R_IMAGES
    classes = imagenet.R_CLASSES
    published = (imagenet.R_IMAGES,)


@register_task("imagenet-sketch")
class ImageNetSketchTask(ImageNetTask):
    """ImageNet-Sketch: black and white sketches."""

    images = imagenet.SKETCH_IMAGES
    classes = len(WNIDS)
    published = (imagenet.SKETCH_IMAGES,)


@register_task("imagenet-d109")
class ImageNetD109Task(ImageNetTask):
    """ImageNet-D109: five domains of DomainNet."""

    classes = 109
    published = tuple(imagenet.D109_IMAGES.values())


@dataclass(frozen=True)
class ImageNetC(OnDisk):
    """ImageNet-C: the corruptions that are asked for.

    Args:
        image_list: file with the images to show in uncorrelated streams; None for the published
            ones. Correlated streams show all images.
    """

    image_list: Path | None = None

    def choice(
        self, corruptions: Sequence[str], severity: int, setting: Setting
    ) -> Mapping[str, Any]:
        severities = tuple(setting.severities(severity))
        if 0 in severities:
            refuse_clean(self.name)
        return {
            "corruptions": tuple(corruptions),
            "severities": severities,
            "images": self._images(setting),
        }

    def _images(self, setting: Setting) -> tuple[str, ...] | None:
        if setting.correlated or (self.partial and self.image_list is None):
            return None
        return tuple(imagenet.image_list(self.image_list))


@register_task("imagenet-c")
class ImageNetCTask(ImageNetTask):
    """ImageNet-C: 15 corruptions; 5,000 images each in uncorrelated streams, else 50,000.

    Which 5,000 is the option `image_list`, a file with one WNID/NAME per line. Without it they are
    RobustBench's, from its package.
    """

    images = imagenet.C_PER_CLASS * len(WNIDS)
    classes = len(WNIDS)
    options: ClassVar[Mapping[str, Any]] = {"image_list": lambda text: Path(text).absolute()}
    has_corruptions = True

    def data(self, recipe: TaskRecipe, transform: Transform) -> OnDisk:
        assert recipe.root is not None
        return ImageNetC(
            self.name,
            recipe.root,
            transform,
            recipe.samples,
            recipe.partial,
            image_list=recipe.options.get("image_list"),
        )

    def kept_classes(self, data: OnDisk, model: str, classes: int) -> tuple[int, ...] | None:
        """All: it has every class, and is too large to be scanned before it is shown."""
        check_classes(model, classes, "ImageNet", len(WNIDS))
        return None

    def check(self, root: Path, *, partial: bool = False, **choice: Any) -> imagenet.DataSet:
        """The data in a folder; `images` is a list's file, or "robustbench"."""
        if "images" in choice:
            file = None if choice["images"] == "robustbench" else choice["images"]
            choice["images"] = imagenet.image_list(file)
        return super().check(root, partial=partial, **choice)

    def count(self, cell: Cell, recipe: TaskRecipe) -> int | None:
        if recipe.root is not None:
            return None
        size = self.images if cell.setting.correlated else imagenet.C_LISTED
        showings = cell.setting.showings(len(cell.corruptions), cell.severity)
        return _limited([size] * showings, recipe.samples)

    def published_as(self, recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
        if (file := recipe.options.get("image_list")) is not None:
            listed = sorted(imagenet.image_list(file))
            if fingerprint(*listed) != ROBUSTBENCH_LIST:
                return None
        return super().published_as(recipe, card)


def _limited(sizes: Sequence[int], samples: int | None) -> int:
    return sum(size if samples is None else min(size, samples) for size in sizes)
