"""Tasks of Ray Core: on a cluster that is there, or one on this machine for as long as needed."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from dab.benchmark.engines.engine import Resources, Runs
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import work
from dab.benchmark.engines.local import runs_at_once

__all__ = ["Ray"]

logger = logging.getLogger("dab")

OBJECTS = 100 * 2**20  # bytes of shared memory: nothing but jobs and failures goes through it
ANSWER = 5.0  # seconds that a cluster has to answer
PATIENCE = 60.0  # seconds that runs have for their checkpoints when they are stopped


class Ray:
    """A task for each run; one whose process or node is lost is for the grid to try again.

    Args:
        resources: `address` is what `ray.init` takes; None for "local", a cluster of its own.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._tasks: dict[Any, int] = {}
        is_local = resources.address in (None, "local")
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        if is_local:  # Ray reads this when it is imported, and then listens on loopback alone
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        try:
            import ray
        except ImportError as error:
            raise ValueError(f"{error}: pip install 'dab-tta[ray]'") from error
        self._ray: Any = ray
        own: dict[str, Any] = {
            "num_cpus": runs_at_once(resources) * resources.threads,
            "include_dashboard": False,
            "object_store_memory": OBJECTS,
            "_node_ip_address": "127.0.0.1",
        }
        if not is_local:
            _check_answer(str(resources.address))
        try:
            ray.init(
                address=resources.address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                **(own if is_local else {}),
            )
        except (RuntimeError, ConnectionError) as error:  # another version, say
            raise ValueError(f"Ray cannot be had: {str(error).splitlines()[0]}") from error
        self._check_room(is_local)
        self._work = ray.remote(
            num_cpus=resources.threads, num_gpus=resources.gpus_per_run, max_retries=0
        )(work)

    def _check_room(self, is_local: bool) -> None:
        """Ray waits silently for a machine that is large enough."""
        needed = {"CPU": self._resources.threads, "GPU": self._resources.gpus_per_run}
        for node in self._ray.nodes():
            if node["Alive"] and all(node["Resources"].get(k, 0) >= v for k, v in needed.items()):
                return
        problem = f"no machine of the cluster has {needed['CPU']} CPUs and {needed['GPU']:g} GPUs"
        if is_local:
            self._ray.shutdown()
            raise ValueError(problem)
        logger.warning("%s: runs wait until one comes", problem)  # some clusters grow

    @property
    def room(self) -> int:
        """As much as is under way may wait besides, so that no worker does."""
        if self._resources.jobs is not None:
            return self._resources.jobs - len(self._tasks)
        there = self._ray.cluster_resources()
        at_once = there.get("CPU", 0) / self._resources.threads
        if gpus := self._resources.gpus_per_run:
            at_once = min(at_once, there.get("GPU", 0) / gpus)
        return 2 * max(1, int(at_once)) - len(self._tasks)

    def start(self, runs: Runs) -> None:
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
        except errors.RayTaskError as error:  # what it is to run cannot be imported there
            return Failure(str(error).splitlines()[-1], str(error))
        except errors.RayError as error:
            reason, _, _ = str(error).partition(". ")  # it goes on for paragraphs
            return Failure(f"{type(error).__name__}: {reason}", lost=True)
        return outcome

    def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            self._ray.cancel(task)  # which a run takes for Ctrl-C
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE)
        self._ray.shutdown()


def _check_answer(address: str) -> None:
    """Ray itself tries an address for minutes before it says that nobody is there."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", or what Ray understands
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except OSError as error:
        raise ValueError(f"no cluster of Ray answers at {address}: {error}") from error
