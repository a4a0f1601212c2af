"""RDumb: ETA that is reset periodically (Press et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from dab.methods.eata import ETA
from dab.methods.eata import Memory as ETAMemory
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.optimizers import OptimizerKind
from dab.parts.options import Count, Momentum, NonNegative, Range, Rate, Seed
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["RDumb"]


@dataclass
class Memory(ETAMemory):
    """What RDumb remembers of its stream."""

    updates: Annotated[int, Range(0)] = 0  # since the last reset


@register("rdumb")
class RDumb(ETA):
    """EATA without its Fisher term, reset to the source after a fixed number of updates.

    Args:
        model: any image classifier with normalization layers.
        reset_every: updates after which weights, momentum and tendency are reset.
        margin: a sample is redundant unless its |cos| with the tendency is below this.
        entropy_below: samples with a lower entropy count as certain; as a share of log C.
        optimizer: "sgd" (with Nesterov momentum), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam.
        weight_decay: of the optimizer.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
        output: a correction of the predictions, or its name; see `dab.outputs`.
        features: where corrections find features; see `dab.parts.features.Features`.
    """

    title = "RDumb"
    paper = "Press et al., RDumb: A simple approach that questions our progress in continual "
    paper += "test-time adaptation, NeurIPS 2023"
    year = 2023
    forwards = 1.4

    def __init__(
        self,
        model: nn.Module,
        *,
        reset_every: Count = 1000,
        margin: NonNegative = 0.05,
        entropy_below: NonNegative = 0.4,
        optimizer: OptimizerKind = "sgd",
        lr: Rate = 2.5e-4,
        momentum: Momentum = 0.9,
        weight_decay: NonNegative = 0.0,
        statistics: StatisticsKind = "batch",
        seed: Seed = 0,
        output: OutputOption = None,
        features: FeatureSource = None,
    ) -> None:
        super().__init__(
            model,
            margin=margin,
            entropy_below=entropy_below,
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            statistics=statistics,
            seed=seed,
            output=output,
            features=features,
        )
        self.reset_every = reset_every

    def begin(self, classes: int) -> Memory:
        return Memory()

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        answer = super().adapt(images, logits)
        memory: Memory = self.memory
        memory.updates += self.last.updated
        if memory.updates == self.reset_every:
            self.trained.restore()  # momentum included
            self.memory = Memory()
        return answer
