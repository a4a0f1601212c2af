"""Tells loggers how a run is going."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from dab.benchmark.results.errors import window_size
from dab.benchmark.results.identity import RunCard
from dab.benchmark.results.result import Result
from dab.benchmark.running.evaluation import Evaluation
from dab.benchmark.running.loggers import Logger
from dab.streams import Stream

__all__ = ["Journal"]


class Journal:
    """Tells loggers of a run, window by window.

    The metrics are `error` in %; `fill`, the images in the buffer; `admitted`, as a share of the
    images; `updated`, as a share of the calls; and `loss`, if there was an update. With a guard,
    also `estimated_error` in %, made without labels, and the number of `rollbacks`.
    """

    def __init__(self, loggers: Sequence[Logger], card: RunCard, stream: Stream, done: int) -> None:
        self.loggers, self.card, self.stream = loggers, card, stream
        self.calls = window_size(stream) // stream.batch_size  # in a window
        self._told = done

    def __enter__(self) -> Journal:
        for logger in self.loggers:
            logger.start(self.card, self.stream.position(self._told))
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is not None:
            for logger in self.loggers:
                logger.finish(None)

    def note(self, evaluation: Evaluation) -> None:
        """Tell of the last window, if one has just ended."""
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
        if len(losses):
            metrics["loss"] = float(losses.mean())
        estimates = steps["estimated_error"][~steps["estimated_error"].isnan()]
        if len(estimates):
            metrics["estimated_error"] = 100 * float(estimates.mean())
            metrics["rollbacks"] = float(steps["rolled_back"].sum())
        return metrics

    def finish(self, result: Result) -> None:
        for logger in self.loggers:
            logger.finish(result)
