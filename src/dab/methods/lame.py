"""LAME: corrects the predictions of a batch, never the model (Boudiaf et al., 2022)."""

from __future__ import annotations

from torch import nn
from typing_extensions import Unpack

from dab.common import Basic
from dab.methods.source import Source
from dab.outputs import Laplacian
from dab.outputs.lame import Affinity
from dab.parts.options import Count
from dab.registry import register

__all__ = ["LAME"]


@register("lame")
class LAME(Source):
    """The source model with the output correction `dab.outputs.Laplacian`.

    Args:
        model: any image classifier.
        neighbors: k of the affinity between the samples of a batch.
        affinity: "knn" (LAME's paper), "rbf" or "linear"; see `dab.outputs.Laplacian`.
        **common: options that methods share; see `dab.common.Basic`.
    """

    title = "LAME"
    paper = "Boudiaf et al., Parameter-free Online Test-time Adaptation, CVPR 2022"
    year = 2022
    color = 5
    forwards = 1.0
    passes = (1, 0)

    def __init__(
        self,
        model: nn.Module,
        *,
        neighbors: Count = 5,
        affinity: Affinity = "knn",
        **common: Unpack[Basic],
    ) -> None:
        super().__init__(model, output=Laplacian(neighbors, affinity), **common)
