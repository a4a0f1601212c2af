"""Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.loggers.logger import final_metrics, register_logger
from dab.utils.imports import require

__all__ = ["WandB"]


@register_logger("wandb")
class WandB:
    """Logs to where the environment variables of wandb say; `WANDB_MODE=offline` works."""

    def __init__(self, folder: Path) -> None:
        wandb = require("wandb", extra="wandb")

        self.folder, self._wandb = folder, wandb

    def start(self, card: RunCard, seen: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project="dab",
            id=card.run_id,
            group=f"{card.data.name}, {card.setting}",
            name=f"{card.method} {card.run_id[:6]}",
            config=card.to_json(),
            dir=str(self.folder),
            resume="allow",
        )

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=seen)

    def finish(self, result: Result | None) -> None:
        if result is not None:
            self._run.summary.update(final_metrics(result))
        self._run.finish(exit_code=0 if result is not None else 1)
