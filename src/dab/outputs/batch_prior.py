"""ROID's correction: the classes of this batch as a prior for each of its samples."""

from __future__ import annotations

from torch import Tensor

from dab.outputs.output import Output, register_output
from dab.parts.functional import probabilities

__all__ = ["BatchPrior"]


@register_output("batch_prior")
class BatchPrior(Output):
    """Weights the logits with a smoothed prior of the batch (Marsden et al., 2024).

    Assumes that classes that are frequent in a batch are likely for each of its samples. That holds
    on a sorted stream; on a shuffled one it costs accuracy. Of a single sample, only the scale of
    the logits changes.
    """

    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        n, classes = logits.shape
        prior = probabilities(logits).mean(dim=0)
        smooth = max(1 / n, 1 / classes) / prior.max()
        return logits * ((prior + smooth) / (1 + smooth * classes)).to(logits)
