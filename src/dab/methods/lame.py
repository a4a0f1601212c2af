"""LAME: corrects the predictions of a batch, never the model (Boudiaf et al., 2022)."""

from __future__ import annotations

from torch import nn

from dab.methods.source import Source
from dab.outputs import Laplacian
from dab.outputs.lame import Affinity
from dab.parts.features import FeatureSource
from dab.parts.options import Count, Seed
from dab.parts.statistics import StatisticsKind
from dab.registry import register

__all__ = ["LAME"]


@register("lame")
class LAME(Source):
    """The source model with the output correction `dab.outputs.Laplacian`.

    Args:
        model: any image classifier.
        neighbors: k of the affinity between the samples of a batch.
        affinity: "knn" (LAME's paper), "rbf" or "linear"; see `dab.outputs.Laplacian`.
        features: where to find features; see `dab.parts.features.Features`.
        statistics: what BatchNorm layers normalize with; see `dab.parts.statistics`.
        seed: unused, as nothing is random.
    """

    title = "LAME"
    paper = "Boudiaf et al., Parameter-free Online Test-time Adaptation, CVPR 2022"
    year = 2022
    color = 5
    forwards = 1.0

    def __init__(
        self,
        model: nn.Module,
        *,
        neighbors: Count = 5,
        affinity: Affinity = "knn",
        features: FeatureSource = None,
        statistics: StatisticsKind = "source",
        seed: Seed = 0,
    ) -> None:
        output = Laplacian(neighbors, affinity)
        super().__init__(model, statistics=statistics, seed=seed, output=output, features=features)
