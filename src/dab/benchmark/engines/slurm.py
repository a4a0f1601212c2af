"""Job arrays of Slurm through submitit, or processes that submitit starts on this machine."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dab.benchmark.compute import check_device
from dab.benchmark.engines.engine import Engine, Resources, Runs, register_engine
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job, work
from dab.benchmark.engines.local import runs_at_once
from dab.benchmark.running.run import Watch
from dab.utils.imports import require

__all__ = ["Slurm"]

LOGS = Path("submitit")  # in the current folder, like Slurm's own logs
MINUTES = 240  # per run; one that takes longer is queued again and resumes
AT_ONCE = 1000  # runs per array, as far as the cluster allows
LOOK = 5.0  # seconds between two looks at the jobs of a cluster
PATIENCE = 60.0  # seconds that stopped runs have to save their checkpoints


@register_engine("slurm")
class Slurm(Engine):
    """Job arrays of Slurm; --address local runs them on this machine.

    All runs that may start become one job array.

    Args:
        resources: `address` is "slurm" (None) or "local"; `slurm` has parameters of sbatch, as
            submitit spells them.
    """

    takes = ("address", "gpus", "slurm")

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        submitit = require("submitit", extra="slurm")
        cluster = resources.address or "slurm"
        if cluster not in ("slurm", "local"):
            raise ValueError(f"the address for slurm must be slurm or local, got {cluster!r}")
        if cluster == "local":
            check_device(resources.device)
        if resources.gpus_per_run % 1:
            raise ValueError(f"Slurm assigns whole GPUs to a run, got {resources.gpus_per_run}")
        try:
            self._executor = submitit.AutoExecutor(LOGS.absolute(), cluster=cluster)
        except RuntimeError as error:  # no Slurm on this machine
            raise ValueError(f"{error}: use --address local to run without Slurm") from error
        try:
            self._executor.update_parameters(
                name="dab",
                timeout_min=MINUTES,
                cpus_per_task=resources.threads,
                gpus_per_node=int(resources.gpus_per_run),
                slurm_array_parallelism=resources.jobs or AT_ONCE,
                **{f"slurm_{name}": value for name, value in resources.slurm.items()},
            )
        except NameError as error:
            raise ValueError(f"--slurm: {str(error).splitlines()[0]}") from error
        self._refused = submitit.core.utils.FailedJobError
        self._is_local = cluster == "local"
        # Over all arrays: a new one starts whenever runs may.
        self._limit = runs_at_once(resources) if self._is_local else resources.jobs or AT_ONCE
        self._next_look = 0.0
        self._jobs: dict[int, Any] = {}

    @property
    def room(self) -> int:
        return self._limit - len(self._jobs)

    def start(self, runs: Runs, watch: Watch) -> None:
        if runs:
            try:
                jobs = self._executor.map_array(_Resumable(), list(runs.values()))
            except self._refused as error:
                raise ValueError(f"Slurm rejected the runs: {error}") from error
            self._jobs.update(zip(runs, jobs, strict=True))

    def ended(self) -> dict[int, Failure | None]:
        if time.monotonic() < self._next_look:
            return {}
        if not self._is_local:  # each look reads a file system that all machines share
            self._next_look = time.monotonic() + LOOK
        over = [number for number, job in self._jobs.items() if job.done()]
        return {number: self._outcome(self._jobs.pop(number)) for number in over}

    def _outcome(self, job: Any) -> Failure | None:
        error = job.exception()
        if error is None:
            outcome: Failure | None = job.result()
            return outcome
        lost = not isinstance(error, self._refused)
        return Failure(f"job {job.job_id} ended ({job.state})", str(error), lost)

    def close(self) -> None:
        for job in self._jobs.values():
            if self._is_local:  # submitit would kill it after a second
                with suppress(ProcessLookupError):
                    os.kill(int(job.job_id), signal.SIGTERM)
            else:
                job.cancel(check=False)  # with SIGTERM first
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not all(job.done() for job in self._jobs.values()):
            time.sleep(0.1)


class _Resumable:
    """Work that is queued again when its time is up, and resumes from the run's checkpoint."""

    def __call__(self, job: Job) -> Failure | None:
        return work(job)

    def checkpoint(self, job: Job) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)
