"""RDumb: ETA that is reset periodically (Press et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn
from typing_extensions import Unpack

from dab.common import Training
from dab.methods.eata import ETA
from dab.methods.eata import Memory as ETAMemory
from dab.parts.options import Count, NonNegative, Range
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
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "RDumb"
    paper = "Press et al., RDumb: A simple approach that questions our progress in continual "
    paper += "test-time adaptation, NeurIPS 2023"
    year = 2023
    forwards = 1.4
    passes = (1, 1)

    def __init__(
        self,
        model: nn.Module,
        *,
        reset_every: Count = 1000,
        margin: NonNegative = 0.05,
        entropy_below: NonNegative = 0.4,
        **common: Unpack[Training],
    ) -> None:
        super().__init__(model, margin=margin, entropy_below=entropy_below, **common)
        self.reset_every = reset_every

    def begin(self, classes: int) -> Memory:
        return Memory()

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        steps = self.last.steps
        answer = super().adapt(images, logits)
        memory: Memory = self.memory
        memory.updates += self.last.steps - steps
        if memory.updates == self.reset_every:
            self.trained.restore()  # momentum included
            self.memory = Memory()
        return answer
