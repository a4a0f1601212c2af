"""CoTTA: a student, a teacher and an anchor (Wang et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.augmentations import augment
from dab.common import Training
from dab.parts.functional import cross_entropy, probabilities
from dab.parts.options import Count, Share
from dab.parts.teacher import Teacher
from dab.registry import register

__all__ = ["CoTTA"]


@dataclass
class Memory:
    """What CoTTA remembers of its stream."""

    teacher: Teacher


@register("cotta")
class CoTTA(Adapter):
    """Trains all weights toward a slow teacher, and resets a few of them to the source.

    Args:
        model: any image classifier.
        augmentations: how many views the teacher averages where the source model is unsure.
        gate: mean confidence below which the source model counts as unsure.
        teacher: how much of itself the teacher keeps in an update.
        restore: probability with which each weight is reset to its source value.
        symmetric: whether the loss is the mean of both cross entropies between teacher and student,
            as in the authors' code for ImageNet. In the paper and in their code for CIFAR, it is
            that of the student alone.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "CoTTA"
    paper = "Wang et al., Continual Test-Time Domain Adaptation, CVPR 2022"
    year = 2022
    color = 3
    forwards = 5.2
    passes = (3, 1)  # 32 forwards more where the source is unsure
    trains = "all weights"
    published = Training(lr=0.01)

    def __init__(
        self,
        model: nn.Module,
        *,
        augmentations: Count = 32,
        gate: Share = 0.1,
        teacher: Share = 0.999,
        restore: Share = 0.001,
        symmetric: bool = True,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, **common)
        self.augmentations, self.gate = augmentations, gate
        self.teacher, self.restore, self.symmetric = teacher, restore, symmetric

    def begin(self, classes: int) -> Memory:
        return Memory(Teacher(self.trained))

    def infer(self, images: Tensor) -> Tensor:
        """The teacher predicts; before the first batch it is the source model."""
        return self.run(images, None if self.memory is None else self.memory.teacher.parameters)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        teacher: Teacher = self.memory.teacher
        anchor = probabilities(self.run(images, self.trained.source_parameters))
        if anchor.amax(dim=1).mean() < self.gate:
            parameters = teacher.parameters
            logits = torch.stack(
                [
                    self.run(augment(images, self.generator), parameters)
                    for _ in range(self.augmentations)
                ]
            ).mean(dim=0)
        with torch.enable_grad():
            student = self.run(images)
            losses = cross_entropy(logits, student)
            if self.symmetric:
                losses = (losses + cross_entropy(student, logits)) / 2
            loss = losses.mean()
        if self.learn(loss):
            teacher.follow(self.teacher)
            self.trained.restore_some(self.restore, self.generator)
        return logits
