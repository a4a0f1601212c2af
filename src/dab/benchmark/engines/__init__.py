"""Where the runs of a grid are made: in this process, on this machine, or on a cluster."""

from collections.abc import Callable, Mapping

from dab.benchmark.engines import local, ray, slurm
from dab.benchmark.engines.dispatch import dispatch
from dab.benchmark.engines.engine import Engine, Resources
from dab.benchmark.engines.inline import run_here

__all__ = ["ENGINES", "Engine", "Resources", "dispatch", "run_here"]

ENGINES: Mapping[str, Callable[[Resources], Engine]] = {
    "local": local.Local,
    "ray": ray.Ray,
    "submitit": slurm.Submitit,
}
