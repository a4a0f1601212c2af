"""Runs written down for other tools to show; each is imported only when asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result, window_size
from dab.streams import Stream
from dab.utils.files import Location

if TYPE_CHECKING:
    from dab.benchmark.running.run import Evaluation

__all__ = ["LOGGERS", "Journal", "Logger", "create_logger"]


class Logger(Protocol):
    """Is told of one run after the other."""

    def start(self, card: RunCard, seen: int) -> None:
        """A run with this identity card begins, or goes on after so many images."""

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        """What the last window was like, after so many images."""

    def finish(self, result: Result | None) -> None:
        """The run has ended, or was cut short if there is no result."""


class Journal:
    """Tells loggers of a run, a window at a time: error in %, and what the method did.

    The metrics are `error`; `fill` of the buffer; `admitted` and `updated`, in shares of the
    images and of the calls; `loss`, where there was an update.
    """

    def __init__(self, loggers: Sequence[Logger], card: RunCard, stream: Stream, done: int) -> None:
        self.loggers, self.card, self.stream = loggers, card, stream
        self.calls = window_size(stream) // stream.batch_size  # in a window
        self._told = done

    def __enter__(self) -> Journal:
        for logger in self.loggers:
            logger.start(self.card, self.stream.position(self._told))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            for logger in self.loggers:
                logger.finish(None)

    def note(self, evaluation: Evaluation) -> None:
        """Tell of the last window, if one has ended."""
        done = evaluation.done
        if not self.loggers or (done % self.calls and done < len(self.stream)):
            return
        metrics = self._metrics(evaluation.predictions, evaluation.record(self._told, done))
        for logger in self.loggers:
            logger.log(self.stream.position(done), metrics)
        self._told = done

    def _metrics(self, predictions: Tensor, steps: Mapping[str, Tensor]) -> dict[str, float]:
        end = self.stream.position(self._told) + int(steps["samples"].sum())
        window = slice(self.stream.position(self._told), end)
        wrong = predictions[window].numpy() != self.stream.labels[window]
        losses = steps["loss"][~steps["loss"].isnan()]
        metrics = {
            "error": 100 * float(wrong.mean()),
            "fill": float(steps["fill"][-1]),
            "admitted": float(steps["admitted"].sum() / steps["samples"].sum()),
            "updated": float(steps["updated"].mean()),
        }
        return metrics | ({"loss": float(losses.mean())} if len(losses) else {})

    def finish(self, result: Result) -> None:
        for logger in self.loggers:
            logger.finish(result)


def final(result: Result) -> dict[str, float]:
    """The figures of a run by name."""
    return {"final/error": result.error} | {
        f"final/{domain}": error for domain, error in result.errors.items()
    }


class TensorBoard:
    """Event files in a folder for each run."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # fails here, not in the first run

        self.folder, self._make = folder, SummaryWriter

    def start(self, card: RunCard, seen: int) -> None:
        # What was written after the checkpoint that the run goes on from is hidden.
        purge = seen + 1 if seen else None
        self._writer = self._make(str(self.folder / card.run_id), purge_step=purge)
        self._writer.add_text("card", f"```\n{json.dumps(card.to_json(), indent=1)}\n```", seen)
        self._samples = card.data.samples

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, seen)

    def finish(self, result: Result | None) -> None:
        if result is not None:
            self.log(self._samples, final(result))
        self._writer.close()


class WandB:
    """Weights & Biases; its own environment variables say where to, `WANDB_MODE=offline` works."""

    def __init__(self, folder: Path) -> None:
        import wandb

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
            self._run.summary.update(final(result))
        self._run.finish(exit_code=0 if result is not None else 1)


class MLflow:
    """MLflow; to `MLFLOW_TRACKING_URI`, or else into a folder."""

    def __init__(self, folder: Path) -> None:
        # Newer versions want a database unless told that plain files are meant; a database would
        # take the whole of mlflow, and its server reads both.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow.tracking import MlflowClient

        uri = os.environ.get("MLFLOW_TRACKING_URI") or folder.resolve().as_uri()
        self._client = MlflowClient(tracking_uri=uri)

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
            client.log_param(self._run, option, json.dumps(value)[:500])  # what it allows

    def log(self, seen: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self._run, name, value, step=seen)

    def finish(self, result: Result | None) -> None:
        for name, value in (final(result) if result else {}).items():
            self._client.log_metric(self._run, name, value)
        self._client.set_terminated(self._run, "FINISHED" if result else "KILLED")


LOGGERS: Mapping[str, Callable[[Path], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "mlflow": MLflow,
}


def create_logger(name: str, out: Location) -> Logger:
    """A logger by name, which writes beside the runs of a folder of results."""
    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}; there are: {', '.join(LOGGERS)}")
    if not isinstance(out, Path):
        raise ValueError(f"{name} writes to folders, not to {out}")
    return LOGGERS[name](out / name)
