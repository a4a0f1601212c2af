"""The options that methods share: declared, documented and given their defaults once.

A method lists its own options in its constructor, then takes these as `**common: Unpack[Training]`.
Its paper's values, where they differ from the defaults, are the class attribute `published`.
"""

from __future__ import annotations

from typing import Any, Generic

from typing_extensions import TypedDict, TypeVar

from dab.guard import GuardOption
from dab.outputs import OutputOption
from dab.parts.features import FeatureSource
from dab.parts.normalization import StatisticsKind
from dab.parts.optimizers import OptimizerKind
from dab.parts.options import Count, Momentum, NonNegative, Rate, Seed

__all__ = ["DEFAULTS", "Basic", "Common", "Training"]

# A method with statistics of its own takes, say, `Training[StatisticsKind | Literal["robust"]]`.
Kinds = TypeVar("Kinds", default=StatisticsKind)


class Basic(TypedDict, Generic[Kinds], total=False):
    """Options of every method.

    Attributes:
        statistics: what BatchNorm layers normalize with; see `dab.parts.normalization.Statistics`.
        seed: of the method's own random generator, for all that it draws; the global generator is
            neither read nor advanced.
        features: where methods and corrections that need features find them; see
            `dab.parts.features.Features`.
    """

    statistics: Kinds
    seed: Seed
    features: FeatureSource


class Common(Basic[Kinds], Generic[Kinds], total=False):
    """Options of every method whose predictions can be corrected.

    Attributes:
        output: a correction of the returned logits, or its name; see
            `dab.outputs`.
    """

    output: OutputOption


class Training(Common[Kinds], Generic[Kinds], total=False):
    """Options of every method that trains.

    Attributes:
        optimizer: "sgd" (with Nesterov momentum, except in SAR), "adam" or "adamw".
        lr: learning rate.
        momentum: of SGD; beta_1 of Adam and AdamW.
        weight_decay: of the optimizer.
        steps: optimizer steps per update. A method that learns from the batch predicts and adapts
            that often, until a pass learns nothing, and returns the logits of the last pass; one
            with a buffer repeats the update on its buffer.
        episodic: whether weights, optimizer, statistics and memory return to the source before
            every batch. Not for methods that learn from a buffer.
        guard: notices when adapting does harm, and steps back: True, an action, or a
            `dab.guard.Guard`.
    """

    optimizer: OptimizerKind
    lr: Rate
    momentum: Momentum
    weight_decay: NonNegative
    steps: Count
    episodic: bool
    guard: GuardOption


# In the order in which they are listed.
DEFAULTS: Training[Any] = {
    "optimizer": "sgd",
    "lr": 2.5e-4,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "steps": 1,
    "episodic": False,
    "guard": False,
    "statistics": "batch",
    "seed": 0,
    "output": None,
    "features": None,
}
