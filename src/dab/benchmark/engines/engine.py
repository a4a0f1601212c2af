"""What the dispatcher asks of an engine, and what a grid may use of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch

from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.running.run import Watch
from dab.utils.registry import Registry

__all__ = ["ENGINES", "Engine", "Resources", "Runs", "engine_class", "register_engine"]

Runs = Mapping[int, Job]
"""Jobs by their number in the grid."""

# Resources that only some engines can use, with their options on the command line.
SPECIAL = {"address": "--address", "gpus": "--gpus-per-run", "slurm": "--slurm"}


@dataclass(frozen=True)
class Resources:
    """What the runs of a grid may use.

    Args:
        jobs: runs at a time; None for as many as fit.
        threads: per run.
        device: that runs compute on.
        gpus: per run; None for a whole one if the device is one.
        address: of the cluster; None for the engine's default.
        slurm: parameters of sbatch.
    """

    jobs: int | None = None
    threads: int = 1
    device: str = "cpu"
    gpus: float | None = None
    address: str | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus_per_run(self) -> float:
        if self.gpus is not None:
            return self.gpus
        return 1.0 if torch.device(self.device).type == "cuda" else 0.0


class Engine(ABC):
    """Runs jobs. Results go to the storage, never through the engine."""

    takes: ClassVar[Sequence[str]] = ()  # of the special resources: "address", "gpus", "slurm"
    in_process: ClassVar[bool] = False  # whether runs share this process and its memory

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    @property
    @abstractmethod
    def room(self) -> int:
        """How many more jobs it would accept now."""

    @abstractmethod
    def start(self, runs: Runs, watch: Watch) -> None:
        """Accept jobs, to be run in this order as far as possible.

        An engine that sees the progress of its runs reports it to `watch`; for others the
        dispatcher reads their progress files.
        """

    @abstractmethod
    def ended(self) -> Mapping[int, Failure | None]:
        """The jobs that have ended since the last call, None for success."""

    @abstractmethod
    def close(self) -> None:
        """Ask active runs to save a checkpoint and stop, wait for them, and clean up."""


ENGINES: Registry[type[Engine]] = Registry("engine")

EngineClass = TypeVar("EngineClass", bound=type[Engine])


def register_engine(name: str) -> Callable[[EngineClass], EngineClass]:
    """Class decorator that makes an engine known by name, also from outside the package."""
    return ENGINES.register(name)


def engine_class(name: str, resources: Resources) -> type[Engine]:
    """An engine by name, if it can use all that the resources name."""
    engine = ENGINES[name]
    for option, flag in SPECIAL.items():
        if getattr(resources, option) not in (None, {}) and option not in engine.takes:
            takers = [other for other in ENGINES if option in ENGINES[other].takes]
            raise ValueError(f"{flag} requires engine {' or '.join(takers)}")
    return engine
