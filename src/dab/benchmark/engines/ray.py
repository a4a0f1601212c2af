"""Tasks of Ray Core: on an existing cluster, or on one that is started on this machine."""

from __future__ import annotations

import logging
from typing import Any

from dab.benchmark.compute import check_device
from dab.benchmark.engines.engine import Engine, Resources, Runs, register_engine
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import work
from dab.benchmark.engines.local import runs_at_once
from dab.benchmark.running.run import Watch
from dab.utils.ray_cluster import connect

__all__ = ["Ray"]

logger = logging.getLogger("dab")

PATIENCE = 60.0  # seconds that stopped runs have to save their checkpoints


@register_engine("ray")
class Ray(Engine):
    """Tasks of Ray, on this machine or on a cluster (--address).

    The dispatcher retries a run whose process or node is lost.

    Args:
        resources: `address` is what `ray.init` takes; None or "local" starts a cluster on this
            machine.
    """

    takes = ("address", "gpus")

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._tasks: dict[Any, int] = {}
        is_local = resources.address in (None, "local")
        if is_local:
            check_device(resources.device)
        cpus = runs_at_once(resources) * resources.threads
        ray = self._ray = connect(None if is_local else resources.address, cpus=cpus)
        self._check_room(is_local)
        self._work = ray.remote(
            num_cpus=resources.threads, num_gpus=resources.gpus_per_run, max_retries=0
        )(work)

    def _check_room(self, is_local: bool) -> None:
        """Ray would wait silently for a machine that is large enough."""
        needed = {"CPU": self.resources.threads, "GPU": self.resources.gpus_per_run}
        for node in self._ray.nodes():
            if node["Alive"] and all(node["Resources"].get(k, 0) >= v for k, v in needed.items()):
                return
        problem = f"no machine of the cluster has {needed['CPU']} CPUs and {needed['GPU']:g} GPUs"
        if is_local:
            self._ray.shutdown()
            raise ValueError(problem)
        logger.warning("%s: runs wait until one joins", problem)  # some clusters grow

    @property
    def room(self) -> int:
        """Twice as many as can run, so that no worker waits."""
        if self.resources.jobs is not None:
            return self.resources.jobs - len(self._tasks)
        cluster = self._ray.cluster_resources()
        at_once = cluster.get("CPU", 0) / self.resources.threads
        if gpus := self.resources.gpus_per_run:
            at_once = min(at_once, cluster.get("GPU", 0) / gpus)
        return 2 * max(1, int(at_once)) - len(self._tasks)

    def start(self, runs: Runs, watch: Watch) -> None:
        for number, job in runs.items():
            self._tasks[self._work.remote(job)] = number

    def ended(self) -> dict[int, Failure | None]:
        if not self._tasks:
            return {}
        tasks = list(self._tasks)
        ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        return {self._tasks.pop(task): self._outcome(task) for task in ready}

    def _outcome(self, task: Any) -> Failure | None:
        errors = self._ray.exceptions
        try:
            outcome: Failure | None = self._ray.get(task)
        except errors.TaskCancelledError:
            return Failure("its process was asked to stop", lost=True)
        except errors.RayTaskError as error:  # an import failed in its process
            return Failure(str(error).splitlines()[-1], str(error))
        except errors.RayError as error:
            reason, _, _ = str(error).partition(". ")  # the rest is paragraphs long
            return Failure(f"{type(error).__name__}: {reason}", lost=True)
        return outcome

    def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            self._ray.cancel(task)  # a run handles it like Ctrl-C
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE)
        self._ray.shutdown()
