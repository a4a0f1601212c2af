"""MLflow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.loggers.logger import final_metrics, register_logger
from dab.utils.imports import require

__all__ = ["MLflow"]


@register_logger("mlflow")
class MLflow:
    """Logs to `MLFLOW_TRACKING_URI`, or else into a folder."""

    def __init__(self, folder: Path) -> None:
        # Newer versions refuse plain files without this. A database would need all of mlflow,
        # and the server reads both.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        tracking = require("mlflow.tracking", extra="mlflow")

        uri = os.environ.get("MLFLOW_TRACKING_URI") or folder.resolve().as_uri()
        self._client = tracking.MlflowClient(tracking_uri=uri)

    def start(self, card: RunCard, seen: int) -> None:
        client, tags = self._client, {"dab.run": card.run_id}
        experiment = client.get_experiment_by_name("dab")
        name = experiment.experiment_id if experiment else client.create_experiment("dab")
        query = f"tags.`dab.run` = '{card.run_id}'"
        if known := client.search_runs([name], query, max_results=1):
            self._run = known[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        run = client.create_run(name, tags=tags, run_name=f"{card.method} {card.run_id[:6]}")
        self._run = run.info.run_id
        for option, value in card.to_json().items():
            client.log_param(self._run, option, json.dumps(value)[:500])  # the longest it allows

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=seen)

    def finish(self, result: Result | None) -> None:
        for name, value in (final_metrics(result) if result else {}).items():
            self._client.log_metric(self._run, name, value)
        self._client.set_terminated(self._run, "FINISHED" if result else "KILLED")
