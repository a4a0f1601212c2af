"""MEMO: one step on the marginal entropy over views of each image (Zhang et al., 2022)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.augmentations import augmix
from dab.common import Training
from dab.parts.batch_norm import Moments, mixed_moments
from dab.parts.functional import marginal_entropy
from dab.parts.layers import BatchNorm
from dab.parts.normalization import StatisticsKind
from dab.parts.options import Count, Share
from dab.registry import register

__all__ = ["MEMO"]


@register("memo")
class MEMO(Adapter):
    """Trains all weights on views of one image, predicts it, and returns to the source.

    An episode is one image, whatever the size of a batch. Its own kind of statistics for BatchNorm
    layers is "alpha": (1 - alpha) source + alpha batch.

    The optimizer is that of the other methods and of the benchmark that compares them: SGD with
    Nesterov momentum 0.9. It starts over with each image, so that its only step is 1.9 times a
    plain one. MEMO's own code has no momentum: `momentum=0`.

    Args:
        model: any image classifier.
        augmentations: how many views of an image the prediction is averaged over.
        alpha: weight of the views, or of the image, in the statistics "alpha".
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "MEMO"
    paper = "Zhang et al., MEMO: Test Time Robustness via Adaptation and Augmentation, NeurIPS 2022"
    year = 2022
    forwards = 200.0
    passes = (65, 64)
    trains = "all weights"
    answers_after_update = True
    one_at_a_time = True
    published = Training(episodic=True, statistics="alpha")

    def __init__(
        self,
        model: nn.Module,
        *,
        augmentations: Count = 64,
        alpha: Share = 0.1,
        **common: Unpack[Training[StatisticsKind | Literal["alpha"]]],
    ) -> None:
        super().__init__(model, **common)  # type: ignore[arg-type]  # "alpha" is its own
        self.augmentations, self.alpha = augmentations, alpha

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        views = augmix(images.expand(self.augmentations, -1, -1, -1), self.generator)
        with torch.enable_grad():
            loss = marginal_entropy(self.run(views))
        self.learn(loss)
        return self.answer(images)

    def moments(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        return mixed_moments(layer, x, self.alpha)
