"""T3A: a classifier adjusted by prototypes, without training (Iwasawa and Matsuo, 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dab.methods.source import Source
from dab.outputs import OutputOption
from dab.parts.features import Features, FeatureSource
from dab.parts.functional import entropy
from dab.parts.options import Range, Seed
from dab.registry import register

__all__ = ["T3A"]
