"""TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.loggers.logger import final_metrics, register_logger
from dab.utils.imports import require

__all__ = ["TensorBoard"]


@register_logger("tensorboard")
class TensorBoard:
    """Writes event files into one folder per run."""

    def __init__(self, folder: Path) -> None:
        require("tensorboard", extra="tensorboard")  # fails here, not in the first run
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self._make = folder, SummaryWriter

    def start(self, card: RunCard, seen: int) -> None:
        # Hides what was written after the checkpoint that the run resumes from.
        purge = seen + 1 if seen else None
        self._writer = self._make(str(self.folder / card.run_id), purge_step=purge)
        self._writer.add_text("card", f"```\n{json.dumps(card.to_json(), indent=1)}\n```", seen)
        self._samples = card.data.samples

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, seen)

    def finish(self, result: Result | None) -> None:
        if result is not None:
            self.log(self._samples, final_metrics(result))
        self._writer.close()
