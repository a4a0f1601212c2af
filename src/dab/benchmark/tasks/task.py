"""A task: a model, and the images that it meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn

from dab.data.corrupted_images import CorruptedImages
from dab.data.images import Images, Subset
from dab.streams import Domain, Setting
from dab.utils.fingerprint import fingerprint

__all__ = [
    "SOURCE_IMAGES",
    "ByCorruption",
    "Clean",
    "Shifts",
    "Task",
    "check_classes",
    "refuse_clean",
]

SOURCE_IMAGES = 2000  # given to methods that ask for some


class Shifts(Protocol):
    """Where the domains of a stream come from."""

    def domains(
        self, corruptions: Sequence[str], severity: int, setting: Setting, cache: Path | None
    ) -> list[Domain]:
        """The domains of a stream; data that are already shifted have their own."""
        ...


class ByCorruption(ABC):
    """Each corruption is a domain."""

    samples: int | None  # show only the first `samples` images; None shows all

    def domains(
        self,
        corruptions: Sequence[str],
        severity: int,
        setting: Setting,
        cache: Path | None = None,
    ) -> list[Domain]:
        """The images under each corruption."""
        return [
            Domain(name, [self._part(name, s, cache) for s in setting.severities(severity)])
            for name in corruptions
        ]

    def _part(self, corruption: str, severity: int, cache: Path | None) -> Images:
        images = self.corrupted(corruption, severity, cache)
        return images if self.samples is None else Subset(images, self.samples)

    @abstractmethod
    def corrupted(self, corruption: str, severity: int, cache: Path | None) -> Images:
        """All images under a corruption."""


@dataclass(frozen=True)
class Clean(ByCorruption):
    """Clean images; each corruption makes a domain.

    Args:
        images: images that the model was not trained on.
        samples: show only the first `samples` images; None shows all.
    """

    images: Images
    samples: int | None = None

    def corrupted(self, corruption: str, severity: int, cache: Path | None) -> Images:
        """The images under a corruption, kept in the cache; as they are at severity 0."""
        if severity == 0:
            return self.images
        return CorruptedImages(self.images, corruption, severity, cache)


@dataclass(frozen=True)
class Task:
    """A trained model and the data that it meets.

    Args:
        name: of the data set, as tables show it.
        data: makes the domains.
        model: makes the source model, which takes images in [0, 1].
        model_card: what identifies the model in addition to its weights: name, preprocessing.
        source_images: makes a batch of training images, for methods that ask for some; None
            if there are none.
        published_as: the column of the paper's tables, if model and data are the paper's.
    """

    name: str
    data: Shifts
    model: Callable[[], nn.Module]
    model_card: Mapping[str, Any]
    source_images: Callable[[], Tensor] | None
    published_as: str | None = None

    @property
    def weights(self) -> str:
        """A hash of the source model's weights."""
        return self._model_facts[0]

    @property
    def layers(self) -> frozenset[type[nn.Module]]:
        """The classes of the source model's layers."""
        return self._model_facts[1]

    @cached_property
    def _model_facts(self) -> tuple[str, frozenset[type[nn.Module]]]:
        """What a run's identity has to know of the model, which is created once for all of it."""
        model = self.model()
        values = ((name, value.cpu().reshape(-1)) for name, value in model.state_dict().items())
        weights = chain(*((name, value.view(torch.uint8).numpy()) for name, value in values))
        return fingerprint(*weights), frozenset(map(type, model.modules()))


def refuse_clean(data: str) -> NoReturn:
    """The error for a setting that starts with clean images, on data that have none."""
    raise ValueError(f"{data} has no clean images, which the setting drive starts with")


def check_classes(model: str, found: int, data: str, needed: int) -> None:
    """Refuse a model for other classes than those of the data: its errors would mean nothing."""
    if found != needed:
        raise ValueError(f"{data} has {needed} classes, but {model} returns {found}")
