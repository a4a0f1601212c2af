"""T3A: a classifier of prototypes, without training (Iwasawa and Matsuo, 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.common import Common
from dab.methods.source import Source
from dab.parts.features import Features
from dab.parts.functional import entropy
from dab.parts.options import Count
from dab.parts.schema import Array, take
from dab.parts.transaction import Recorded
from dab.registry import register

__all__ = ["T3A"]


class Supports(Recorded):
    """Unit features of each class: those with the most certain predictions, up to `most`.

    Args:
        classes: how many there are.
        width: of the features.
        most: how many supports a class keeps.
    """

    def __init__(self, classes: int, width: int, most: int) -> None:
        self.classes, self.width, self.most = classes, width, most
        self.features, self.entropies = torch.empty(0, width), torch.empty(0)
        self.labels = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def join(self, features: Tensor, labels: Tensor, entropies: Tensor) -> None:
        """Add samples, and drop the least certain ones of classes that have too many."""
        if len(self):
            features = torch.cat([self.features.to(features), features])
            labels = torch.cat([self.labels.to(labels), labels])
            entropies = torch.cat([self.entropies.to(entropies), entropies])
        order = entropies.argsort(stable=True)
        order = order[labels[order].argsort(stable=True)]  # by class, the most certain first
        counts = labels.bincount(minlength=self.classes)
        first = counts.cumsum(0) - counts
        rank = torch.arange(len(order), device=order.device) - first[labels[order]]
        kept = order[rank < self.most].sort().values
        self.features, self.labels, self.entropies = features[kept], labels[kept], entropies[kept]

    @property
    def prototypes(self) -> Tensor:
        """The mean of each class, of unit length."""
        total = self.features.new_zeros(self.classes, self.width)
        return F.normalize(total.index_add_(0, self.labels, self.features), dim=1)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "features": self.features.clone(),
            "labels": self.labels.clone(),
            "entropies": self.entropies.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the supports of as many classes."""
        features, labels, entropies = take(
            state,
            features=Array((None, self.width), least=-1.001, below=1.001),
            labels=Array((None,), torch.int64, least=0, below=self.classes),
            entropies=Array((None,), least=0, below=math.log(self.classes) + 1e-3),
        )
        if not len(features) == len(labels) == len(entropies):
            raise ValueError("the state's supports do not have a label and an entropy each")
        if len(labels) and len(labels.unique()) < self.classes:
            raise ValueError("the state's supports leave out a class")
        self.features, self.labels = features.clone(), labels.clone()
        self.entropies = entropies.clone()


@dataclass
class Memory:
    """What T3A remembers of its stream."""

    supports: Supports


@register("t3a")
class T3A(Source):
    """Replaces the last linear layer by the mean of each class's most certain features.

    The first support of a class is its row of that layer, so the model needs one that computes the
    logits. No weight changes.

    Args:
        model: any image classifier that ends in a linear layer.
        supports: how many to keep per class, those with the lowest entropy.
        **common: options that methods share; see `dab.common.Common`.
    """

    title = "T3A"
    paper = "Iwasawa and Matsuo, Test-Time Classifier Adjustment Module for Model-Agnostic Domain "
    paper += "Generalization, NeurIPS 2021"
    year = 2021
    forwards = 1.0
    passes = (1, 0)

    def __init__(self, model: nn.Module, *, supports: Count = 20, **common: Unpack[Common]) -> None:
        self._tap = Features(model)
        self._seen: tuple[Tensor, Tensor] | None = None  # features and logits of this call
        super().__init__(model, **common)
        self.supports = supports

    def begin(self, classes: int) -> Memory:
        assert self._tap.classifier is not None, "features are tapped before a memory begins"
        return Memory(Supports(classes, self._tap.classifier.in_features, self.supports))

    @property
    def status(self) -> str:
        if self.memory is None:
            return "ready: no images yet"
        return f"holding {len(self.memory.supports):,} supports of {self.classes:,} classes"

    def infer(self, images: Tensor) -> Tensor:
        """The features times the prototypes; before the first batch, the model's own logits."""
        logits, features = self._tap(images, lambda: self.run(images))
        self._seen = _wide(features.detach()), logits.detach()
        known = self.memory is not None and len(self.memory.supports)
        # Logits that are not finite are skipped, whatever the prototypes make of the features.
        return self._classify(logits) if known and torch.isfinite(logits).all() else logits

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        assert self._seen is not None
        features, predicted = self._seen
        supports: Supports = self.memory.supports
        if not len(supports):
            supports.join(*self._rows_of_classifier(images[:1]))
        supports.join(F.normalize(features, dim=1), predicted.argmax(dim=1), entropy(predicted))
        answer = self._classify(logits)
        self._seen = None
        return answer

    def _classify(self, like: Tensor) -> Tensor:
        assert self._seen is not None
        features, _ = self._seen
        prototypes: Tensor = self.memory.supports.prototypes.to(features)
        return (features @ prototypes.T).to(like.dtype)

    def _rows_of_classifier(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first support of each class, its label and the entropy of its prediction."""
        classifier, chosen = self._tap.classifier, self._tap.rows(image, lambda: self.run(image))
        if classifier is None or chosen is None:
            raise ValueError(
                "t3a needs a model whose logits are the output of a linear layer: the last one "
                f"that runs on one row per image is {classifier}"
            )
        rows = _wide(classifier.weight.detach())[chosen]
        bias = 0.0 if classifier.bias is None else _wide(classifier.bias.detach())[chosen]
        labels = torch.arange(len(rows), device=rows.device)
        return F.normalize(rows, dim=1), labels, entropy(rows @ rows.T + bias)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
