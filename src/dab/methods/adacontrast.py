"""AdaContrast: contrastive learning with refined pseudo-labels (Chen et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.augmentations import strong, weak
from dab.common import Training
from dab.parts.features import Features
from dab.parts.functional import probabilities
from dab.parts.normalization import StatisticsKind
from dab.parts.options import Count, Positive, Range, Share
from dab.parts.ring_buffer import RingBuffer
from dab.parts.schema import Array
from dab.parts.teacher import Teacher
from dab.registry import register

__all__ = ["AdaContrast"]


@dataclass
class Memory:
    """What AdaContrast remembers of its stream."""

    teacher: Teacher  # the momentum copy, which makes the keys
    queue: RingBuffer  # unit features of keys, and their labels
    bank: RingBuffer  # unit features of weak views, and their probabilities
    seen: Annotated[int, Range(0)] = 0  # samples

    def check(self) -> None:
        """Refuse a state whose keys and bank are of different features."""
        features = [ring.columns[0] for ring in (self.queue, self.bank) if len(ring)]
        if len({(column.shape[1], column.dtype) for column in features}) > 1:
            raise ValueError("queue and bank hold features of different widths or types")


@register("adacontrast")
class AdaContrast(Adapter):
    """Trains all weights on pseudo-labels of the nearest neighbors and on contrasted views.

    Predicts with the model after the update. Its own kind of statistics for BatchNorm layers is
    "train": the batch's in training passes, running averages in predictions.

    Args:
        model: any image classifier.
        temperature: T of the contrastive loss.
        queue: number of negatives, and of samples in the bank at most.
        teacher: how much of itself the momentum copy keeps in an update.
        neighbors: number of neighbors whose mean prediction is the pseudo-label.
        refine_after: samples before pseudo-labels are refined by neighbors.
        crop: whether weak views are shifted and strong ones cropped (the authors: not on ImageNet-C
            and CIFAR).
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "AdaContrast"
    paper = "Chen et al., Contrastive Test-Time Adaptation, CVPR 2022"
    year = 2022
    color = 2
    forwards = 6.3
    passes = (5, 1)
    answers_after_update = True
    trains = "all weights"
    published = Training(lr=2e-4, weight_decay=1e-4, statistics="train")

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: Positive = 0.07,
        queue: Count = 16384,
        teacher: Share = 0.999,
        neighbors: Count = 10,
        refine_after: Annotated[int, Range(0, 2**31 - 1)] = 1024,
        crop: bool = False,
        **common: Unpack[Training[StatisticsKind | Literal["train"]]],
    ) -> None:
        self._tap = Features(model, common.get("features"))
        super().__init__(model, **common)  # type: ignore[arg-type]  # "train" is its own
        self.temperature, self.queue, self.teacher = temperature, queue, teacher
        self.neighbors, self.refine_after = neighbors, refine_after
        self.crop = crop

    def begin(self, classes: int) -> Memory:
        features = Array((None, None))
        labels = Array((None,), torch.int64, least=0, below=classes)
        return Memory(
            Teacher(self.trained),
            queue=RingBuffer(self.queue, features, labels),
            bank=RingBuffer(self.queue, features, Array((None, classes), least=0)),
        )

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        memory: Memory = self.memory
        w = weak(images, self.generator, self.crop)
        q, k = (strong(images, self.generator, self.crop) for _ in range(2))
        logits_w, features_w = self._run(w)
        labels = self._pseudo_labels(logits_w, features_w)
        memory.teacher.follow(self.teacher)
        _, keys = self._run(k, memory.teacher.parameters)
        if not len(memory.queue):
            self._fill_queue(keys)
        with torch.enable_grad():
            logits_q, queries = self._run(q)
            loss = (
                F.cross_entropy(logits_q, labels)
                + self._contrast(queries, keys, labels)
                - self._diversity(logits_q)
            )
        self.learn(loss)
        memory.queue.push(keys, labels)
        logits_w, features_w = self._run(w, memory.teacher.parameters)
        memory.bank.push(features_w, probabilities(logits_w))
        memory.seen += len(images)
        return self.answer(images)

    def _run(
        self, images: Tensor, parameters: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits and unit features, in float32 or wider."""
        with self.statistics.training(move=parameters is None):
            logits, features = self._tap(images, lambda: self.run(images, parameters))
        wide = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(wide), F.normalize(features.to(wide), dim=1)

    def _pseudo_labels(self, logits: Tensor, features: Tensor) -> Tensor:
        """Its own prediction, or the mean prediction of the nearest samples in the bank."""
        bank = self.memory.bank
        if self.memory.seen < self.refine_after or not len(bank):
            return logits.argmax(dim=1)
        known, predictions = bank.columns
        nearest = (features @ known.T).topk(min(self.neighbors, len(bank)), dim=1).indices
        labels: Tensor = predictions[nearest].mean(dim=1).argmax(dim=1)
        return labels

    def _contrast(self, queries: Tensor, keys: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of finding a query's own key among negatives of other labels.

        Keys join the queue afterward, so the negatives are from earlier batches.
        """
        negatives, negative_labels = self.memory.queue.columns
        positive = (queries * keys).sum(dim=1, keepdim=True)
        similarity = torch.cat([positive, queries @ negatives.T], dim=1) / self.temperature
        same = labels[:, None] == negative_labels[None]
        masked = F.pad(same, (1, 0))  # its own key is never masked
        similarity = similarity.masked_fill(masked, -torch.inf)
        return -similarity.log_softmax(dim=1)[:, 0].mean()

    @staticmethod
    def _diversity(logits: Tensor) -> Tensor:
        """Entropy of the batch's mean prediction."""
        p = logits.softmax(dim=1).mean(dim=0)
        return -(p * (p + 1e-8).log()).sum()

    def _fill_queue(self, like: Tensor) -> None:
        """Random unit features with random labels, until there are enough keys."""
        shape = (self.queue, like.shape[1])
        noise = torch.randn(shape, generator=self.generator, dtype=like.dtype)
        assert self.classes is not None
        labels = torch.randint(self.classes, (self.queue,), generator=self.generator)
        self.memory.queue.push(F.normalize(noise, dim=1).to(like.device), labels.to(like.device))
