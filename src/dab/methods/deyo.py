"""DeYO: entropy minimization on samples recognized by their shape (Lee et al., 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.augmentations import shuffle_patches
from dab.common import Training
from dab.parts.functional import entropy, probabilities
from dab.parts.layers import Layers, chosen_norm_parameters
from dab.parts.options import Count, NonNegative
from dab.registry import register

__all__ = ["DeYO"]


@register("deyo")
class DeYO(Adapter):
    """Trains on certain samples whose prediction breaks when their patches are shuffled.

    Args:
        model: any image classifier with normalization layers.
        layers: train "all" normalization layers, or only the "early" ones, without the last
            quarter of the blocks and the final norm (DeYO's own paper).
        entropy_below: samples with a lower entropy count as certain; as a share of log C.
        entropy_weight: E_0 of the weights exp(E_0 - H), as a share of log C.
        plpd_above: a sample is trained on if the probability of its predicted class falls by more
            than this when its patches are shuffled.
        patches: cells per side of the grid that is shuffled.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "DeYO"
    paper = "Lee et al., Entropy is not Enough for Test-Time Adaptation: From the Perspective of "
    paper += "Disentangled Factors, ICLR 2024"
    year = 2024
    forwards = 3.2
    passes = (2, 1)
    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        layers: Layers = "early",
        entropy_below: NonNegative = 0.5,
        entropy_weight: NonNegative = 0.4,
        plpd_above: float = 0.2,
        patches: Count = 4,
        **common: Unpack[Training],
    ) -> None:
        self.layers = layers
        super().__init__(model, **common)
        self.entropy_below, self.entropy_weight = entropy_below, entropy_weight
        self.plpd_above, self.patches = plpd_above, patches

    def trainable(self, model: nn.Module) -> Mapping[str, nn.Parameter]:
        return chosen_norm_parameters(model, self.layers)

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        most = math.log(logits.shape[1])
        y = probabilities(logits)
        with torch.enable_grad():
            entropies = entropy(logits)
        certain = (entropies.detach() < self.entropy_below * most).nonzero().flatten()  # S1
        if not len(certain):
            self.last.reason = "no update: no sample is certain enough"
            return logits
        shuffled = shuffle_patches(images[certain], self.patches, self.generator)
        labels = y[certain].argmax(dim=1, keepdim=True)
        # PLPD = y_c(x) - y_c(x'): what the prediction loses without the shape.
        plpd = (y[certain] - probabilities(self.run(shuffled))).gather(1, labels).flatten()
        kept = plpd > self.plpd_above  # S2
        if not kept.any():
            self.last.reason = "no update: no certain sample is recognized by its shape"
            return logits
        with torch.enable_grad():
            h, plpd = entropies[certain[kept]], plpd[kept]
            w = (self.entropy_weight * most - h.detach()).exp() + plpd.exp()
            loss = (w * h).mean()
        self.learn(loss)
        return logits
