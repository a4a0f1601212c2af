"""One run after the other, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dab.benchmark.compute import check_device
from dab.benchmark.engines.engine import Engine, Resources, Runs, register_engine
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.job import outcome
from dab.benchmark.running.run import Watch

__all__ = ["Inline"]


@register_engine("inline")
class Inline(Engine):
    """One run at a time, in this process."""

    in_process = True

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        if resources.jobs not in (None, 1):
            raise ValueError(
                f"the inline engine runs one job at a time, not {resources.jobs}: use the local "
                "engine"
            )
        check_device(resources.device)
        self._next: dict[int, partial[Failure | None]] = {}

    @property
    def room(self) -> int:
        return 1 - len(self._next)

    def start(self, runs: Runs, watch: Watch) -> None:
        self._next.update({number: partial(outcome, job, watch) for number, job in runs.items()})

    def ended(self) -> Mapping[int, Failure | None]:
        """Make the run that was started; an interrupt passes through."""
        ended = {number: call() for number, call in self._next.items()}
        self._next.clear()
        return ended

    def close(self) -> None:
        self._next.clear()
