"""ETA and EATA: entropy minimization on reliable, non-redundant samples (Niu et al., 2022)."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.common import Training
from dab.parts.functional import entropy, follow, probabilities
from dab.parts.inputs import to_images
from dab.parts.named_tensors import NamedTensors
from dab.parts.options import Count, NonNegative
from dab.parts.schema import Tendency
from dab.registry import register

__all__ = ["EATA", "ETA", "Memory"]

logger = logging.getLogger("dab")


@dataclass
class Memory:
    """What ETA remembers of its stream."""

    # q: mean prediction of the samples trained on, if any
    tendency: Annotated[Tensor | None, Tendency()] = None


class ETA(Adapter):
    """Trains on samples that are certain and unlike the recent ones."""

    learns_from_prediction = True

    def __init__(
        self,
        model: nn.Module,
        *,
        margin: NonNegative = 0.05,
        entropy_below: NonNegative = 0.4,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, **common)
        self.margin, self.entropy_below = margin, entropy_below

    def begin(self, classes: int) -> Memory:
        return Memory()

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        memory: Memory = self.memory
        y = probabilities(logits)
        threshold = self.entropy_below * math.log(y.shape[1])  # E_0
        with torch.enable_grad():
            entropies = entropy(logits)
            chosen = entropies < threshold  # S1: reliable
            if memory.tendency is not None:  # S2: and not redundant
                similarity = F.cosine_similarity(y, memory.tendency.to(y)[None], dim=1)
                chosen &= similarity.abs() < self.margin
            if not chosen.any():
                self.last.reason = "no update: no sample is both certain and new"
                return logits
            kept = entropies[chosen]
            loss = ((threshold - kept.detach()).exp() * kept).mean() + self.anchor()
        if self.learn(loss):
            memory.tendency = (
                y[chosen].mean(dim=0)
                if memory.tendency is None
                else follow(memory.tendency, y[chosen])
            )
        return logits

    def anchor(self) -> Tensor | float:
        """What is added to the loss to hold the weights near the source's."""
        return 0.0


@register("eata")
class EATA(ETA):
    """Trains on samples that are certain and unlike the recent ones, anchored by a Fisher term.

    Args:
        model: any image classifier with normalization layers.
        source_images: source images for the Fisher term, as one tensor, as batches, or as batches
            of (images, labels). Without them, the method runs as ETA: without that term.
        fisher_images: how many of them are used.
        fisher_weight: of the Fisher term in the loss.
        margin: a sample is redundant unless its |cos| with the tendency is below this.
        entropy_below: samples with a lower entropy count as certain; as a share of log C.
        batch_size: of the batches into which a single tensor of source images is split.
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "EATA"
    paper = "Niu et al., Efficient Test-Time Model Adaptation without Forgetting, ICML 2022"
    year = 2022
    color = 4
    forwards = 1.4
    passes = (1, 1)
    constants = ("fisher",)  # a resumed run may have no source images to estimate it from again

    def __init__(
        self,
        model: nn.Module,
        *,
        source_images: Iterable[Any] | None = None,
        fisher_images: Count = 2000,
        fisher_weight: NonNegative = 2000.0,
        margin: NonNegative = 0.05,
        entropy_below: NonNegative = 0.4,
        batch_size: Count = 64,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, margin=margin, entropy_below=entropy_below, **common)
        self.fisher_weight = fisher_weight
        shapes = [source.shape for source in self.trained.source]
        self.fisher = NamedTensors(dict(zip(self.trained.names, shapes, strict=True)))
        if source_images is None:
            logger.warning("eata: no source_images, so it runs as ETA, without the Fisher term")
        else:
            fisher = self._estimate_fisher(source_images, fisher_images, batch_size)
            self.fisher.tensors = fisher

    def anchor(self) -> Tensor | float:
        """fisher_weight * sum_j F_j (theta_j - theta0_j)^2"""
        if not self.fisher.tensors:
            return 0.0
        trained = self.trained
        parts = zip(self.fisher.tensors, trained.parameters, trained.source, strict=True)
        distances = [(f * (theta.to(source) - source).square()).sum() for f, theta, source in parts]
        return self.fisher_weight * torch.stack(distances).sum()

    @torch.inference_mode(False)
    @torch.no_grad()
    def _estimate_fisher(self, batches: Iterable[Any], most: int, batch_size: int) -> list[Tensor]:
        """Mean over batches of the squared gradient of the cross-entropy to its own argmax."""
        if isinstance(batches, Tensor):
            batches = batches.split(batch_size)  # type: ignore[no-untyped-call]
        fisher = [torch.zeros_like(source) for source in self.trained.source]
        used = seen = 0
        for batch in batches:
            images = self._checked(to_images(batch))[: most - seen]
            with torch.enable_grad():
                logits = self.run(images)
                loss = F.cross_entropy(logits, logits.argmax(dim=1))
            gradients = self.trained.gradients(loss)
            if gradients is None:
                raise ValueError(f"source batch {used} has a gradient that is not finite")
            for total, gradient in zip(fisher, gradients, strict=True):
                if gradient is not None:
                    total += gradient.square()
            used, seen = used + 1, seen + len(images)
            if seen >= most:
                break
        if not used:
            raise ValueError("source_images is empty")
        return [total / used for total in fisher]
