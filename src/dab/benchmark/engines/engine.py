"""What a grid asks of an engine, and what an engine may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job

__all__ = ["Engine", "Resources", "Runs"]

Runs = Mapping[int, Job]
"""Jobs by the number that the grid knows them by."""


@dataclass(frozen=True)
class Resources:
    """What the runs of a grid may take.

    Args:
        jobs: runs at once; None for as many as there is room for.
        threads: of each run.
        device: that they compute on.
        gpus: of each run; None for a whole one if the device is one.
        address: of the cluster; None for the engine's own choice.
        options: more that a cluster may want to know.
    """

    jobs: int | None = None
    threads: int = 1
    device: str = "cpu"
    gpus: float | None = None
    address: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus_per_run(self) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if torch.device(self.device).type == "cuda" else 0.0


class Engine(Protocol):
    """Runs jobs in other processes; results go to the storage, never through the engine."""

    @property
    def room(self) -> int:
        """How many more jobs it would take now."""
        ...

    def start(self, runs: Runs) -> None:
        """Take jobs on, in this order as far as possible."""
        ...

    def ended(self) -> dict[int, Failure | None]:
        """Those that have ended since it was last asked; it does not wait."""
        ...

    def close(self) -> None:
        """Ask what is under way to leave a checkpoint and stop, wait for it, and clean up."""
        ...
