"""LAME: corrects the predictions of a batch, never the model (Boudiaf et al., 2022)."""

from __future__ import annotations

from torch import nn

from dab.methods.source import Source
from dab.outputs import Laplacian
from dab.parts.features import FeatureSource
from dab.parts.options import Count, Seed
from dab.registry import register

__all__ = ["LAME"]


@register("lame")
class LAME(Source):
    """The source model with the output correction `dab.outputs.Laplacian`.

    Args:
        model: any image classifier.
        neighbors: k of the k-nearest-neighbor affinity between the samples of a batch.
        features: where to find features; see `dab.parts.features.Features`.
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
        features: FeatureSource = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(model, seed=seed, output=Laplacian(neighbors), features=features)
