"""T3A: a classifier of prototypes, without training (Iwasawa and Matsuo, 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dab.methods.source import Source
from dab.outputs import OutputOption
from dab.parts.features import Features, FeatureSource
from dab.parts.functional import entropy
from dab.parts.options import Count, Seed
from dab.parts.statistics import StatisticsKind
from dab.parts.transaction import Recorded
from dab.registry import register

__all__ = ["T3A"]


class Supports(Recorded):
    """Unit features of each class: those with the most certain predictions, up to `most`."""

    def __init__(self, features: Tensor, labels: Tensor, entropies: Tensor, most: int) -> None:
        self.most, self.classes = most, len(features)
        self.features, self.labels, self.entropies = features, labels, entropies

    def join(self, features: Tensor, labels: Tensor, entropies: Tensor) -> None:
        """Add samples, and drop the least certain ones of classes that have too many."""
        features = torch.cat([self.features, features])
        labels = torch.cat([self.labels, labels])
        entropies = torch.cat([self.entropies, entropies])
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
        total = self.features.new_zeros(self.classes, self.features.shape[1])
        return F.normalize(total.index_add_(0, self.labels, self.features), dim=1)

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "features": self.features.clone(),
            "labels": self.labels.clone(),
            "entropies": self.entropies.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over the supports of a classifier of the same size."""
        features, labels, entropies = state["features"], state["labels"], state["entropies"]
        if features.shape[1:] != self.features.shape[1:] or len(features) != len(labels):
            raise ValueError("the state's supports are of another classifier")
        self.features = features.to(self.features, copy=True)
        self.labels = labels.to(self.labels, copy=True)
        self.entropies = entropies.to(self.entropies, copy=True)


@dataclass
class Memory:
    """What T3A remembers of its stream."""

    supports: Supports


@register("t3a")
class T3A(Source):
    """Replaces the last linear layer by the means of confident features of each class.

    The first support of a class is its row of that layer, so the model needs one that computes the
    logits. No weight changes.

    Args:
        model: any image classifier that ends in a linear layer.
        supports: per class, those of the lowest entropy; a number that is never reached keeps all.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the answers, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "T3A"
    paper = "Iwasawa and Matsuo, Test-Time Classifier Adjustment Module for Model-Agnostic Domain "
    paper += "Generalization, NeurIPS 2021"
    year = 2021
    forwards = 1.0

    def __init__(
        self,
        model: nn.Module,
        *,
        supports: Count = 20,
        statistics: StatisticsKind = "source",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        self._tap = Features(model)
        self._seen: tuple[Tensor, Tensor] | None = None  # features and logits of this call
        super().__init__(model, statistics=statistics, seed=seed, output=output, features=features)
        self.supports = supports

    def begin(self, classes: int) -> Memory:
        assert self.images_like is not None
        image = self.images_like.new_zeros((1, *self.images_like.shape[1:]))
        classifier, chosen = self._tap.classifier, self._tap.rows(image, lambda: self.run(image))
        if classifier is None or chosen is None:
            raise ValueError(
                "t3a needs a model whose logits are the output of a linear layer: the last one "
                f"that runs on one row per image is {classifier}"
            )
        rows = _wide(classifier.weight.detach())[chosen]
        bias = 0.0 if classifier.bias is None else _wide(classifier.bias.detach())[chosen]
        labels = torch.arange(classes, device=rows.device)
        entropies = entropy(rows @ rows.T + bias)
        return Memory(Supports(F.normalize(rows, dim=1), labels, entropies, self.supports))

    @property
    def status(self) -> str:
        if self.memory is None:
            return "ready: no images yet"
        return f"holding {len(self.memory.supports.labels):,} supports of {self.classes:,} classes"

    def infer(self, images: Tensor) -> Tensor:
        """The features times the prototypes; before the first batch, the model's own logits."""
        logits, features = self._tap(images, lambda: self.run(images))
        self._seen = _wide(features.detach()), logits.detach()
        if self.memory is None or not torch.isfinite(logits).all():
            return logits  # which are skipped if they are not finite
        return self._classify(logits)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        assert self._seen is not None
        features, predicted = self._seen
        supports: Supports = self.memory.supports
        supports.join(F.normalize(features, dim=1), predicted.argmax(dim=1), entropy(predicted))
        answer = self._classify(logits)
        self._seen = None
        return answer

    def _classify(self, like: Tensor) -> Tensor:
        assert self._seen is not None
        answer: Tensor = self._seen[0] @ self.memory.supports.prototypes.T
        return answer.to(like.dtype)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
