"""Buffers: one policy (what is admitted and evicted) over one storage (where the pixels are)."""

from dab.buffers.balanced import BalancedPolicy
from dab.buffers.budget import Budget
from dab.buffers.buffer import Buffer, Placement, Policy
from dab.buffers.cstu import CSTUPolicy
from dab.buffers.pbrs import PBRSPolicy
from dab.buffers.storage import ImageStorage, StorageKind
from dab.buffers.trigger import Trigger, TriggerKind

__all__ = [
    "BalancedPolicy",
    "Budget",
    "Buffer",
    "CSTUPolicy",
    "ImageStorage",
    "PBRSPolicy",
    "Placement",
    "Policy",
    "StorageKind",
    "Trigger",
    "TriggerKind",
]
