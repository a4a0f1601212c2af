"""Worker processes on this machine: one per device, or per core."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe

import torch

from dab.benchmark.compute import check_device
from dab.benchmark.engines.engine import Engine, Resources, Runs, register_engine
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import Job
from dab.benchmark.running.run import Watch
from dab.utils.parallel import usable_cores

__all__ = ["Local", "runs_at_once"]

# Workers use this process's module path: a dab.py in the current folder is not the package.
COMMAND = """
import sys
sys.path[:] = sys.argv[2:]
from dab.benchmark.engines.worker import serve
serve(int(sys.argv[1]))
"""


def runs_at_once(resources: Resources) -> int:
    """As many as there are devices, or on a CPU as many as there are cores for their threads."""
    if resources.jobs is not None:
        return resources.jobs
    if torch.device(resources.device).type == "cuda":
        is_one = torch.device(resources.device).index is not None
        return 1 if is_one else max(1, torch.cuda.device_count())
    if torch.device(resources.device).type != "cpu":
        return 1
    return max(1, usable_cores() // resources.threads)


@register_engine("local")
class Local(Engine):
    """Worker processes on this machine.

    They are started when needed and kept; one that dies is replaced.
    """

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        check_device(resources.device)
        self._workers: list[_Worker | None] = [None] * runs_at_once(resources)

    @property
    def room(self) -> int:
        return sum(worker is None or worker.number is None for worker in self._workers)

    def start(self, runs: Runs, watch: Watch) -> None:
        free = (i for i, worker in enumerate(self._workers) if not worker or worker.number is None)
        for (number, job), slot in zip(runs.items(), list(free), strict=False):
            worker = self._workers[slot] or _Worker()
            self._workers[slot] = worker
            worker.start(number, self._placed(job, slot))

    def _placed(self, job: Job, slot: int) -> Job:
        """The job on the device of its slot."""
        compute = job.cell.compute
        if compute.device != "cuda":
            return job
        compute = replace(compute, device=f"cuda:{slot % torch.cuda.device_count()}")
        return replace(job, cell=replace(job.cell, compute=compute))

    def ended(self) -> dict[int, Failure | None]:
        found: dict[int, Failure | None] = {}
        for slot, worker in enumerate(self._workers):
            if worker is None or worker.number is None or not worker.connection.poll():
                continue
            number, worker.number = worker.number, None
            try:
                found[number] = worker.connection.recv()
            except (EOFError, OSError):  # also in the middle of a message
                found[number] = Failure(_end(worker.process.wait()), lost=True)
                self._workers[slot] = None
        return found

    def close(self) -> None:
        workers = [worker for worker in self._workers if worker is not None]
        for worker in workers:
            worker.connection.close()  # a request to stop
        for worker in workers:
            worker.process.wait()


class _Worker:
    """A process, and the number of its current job, if any."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.connection, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdout=2,  # stdout is for tables only
                start_new_session=True,  # this process passes Ctrl-C on
            )

    def start(self, number: int, job: Job) -> None:
        self.number = number
        with suppress(BrokenPipeError):  # it has died, which `ended` notices
            self.connection.send(job)


def _end(status: int) -> str:
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"
