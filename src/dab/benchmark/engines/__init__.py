"""Where the runs of a grid are made: in this process, on this machine, or on a cluster."""

from dab.benchmark.engines import inline, local, ray, slurm  # each registers its engine
from dab.benchmark.engines.dispatch import dispatch
from dab.benchmark.engines.engine import (
    ENGINES,
    Engine,
    Resources,
    engine_class,
    register_engine,
)

__all__ = [
    "ENGINES",
    "Engine",
    "Resources",
    "dispatch",
    "engine_class",
    "inline",
    "local",
    "ray",
    "register_engine",
    "slurm",
]
