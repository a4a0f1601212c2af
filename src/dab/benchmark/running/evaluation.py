"""Predict, then adapt, batch by batch: everything here can change a run's numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dab.adapter import Adapter
from dab.benchmark.results.errors import (
    error_of_tracks,
    errors_by_domain,
    errors_by_window,
    window_size,
)
from dab.benchmark.results.result import GuardLog
from dab.registry import asks_for, create
from dab.streams import Batch, Stream
from dab.utils.fingerprint import fingerprint

if TYPE_CHECKING:
    from dab.benchmark.cell import Cell
    from dab.benchmark.tasks.task import Task

__all__ = ["STEP_FIELDS", "Evaluation", "create_adapter", "stream_of"]

# What is kept of each `Step`.
STEP_FIELDS = (
    *("samples", "admitted", "replaced", "fill", "updated", "skipped", "loss"),
    *("compared", "rolled_back", "estimated_error"),
)


def stream_of(cell: Cell, task: Task, cache: Path | None) -> Stream:
    """The stream that a cell's method is shown."""
    domains = task.data.domains(cell.corruptions, cell.severity, cell.setting, cache)
    return Stream(domains, cell.setting, cell.seed, cell.batch_size, cell.shard)


def create_adapter(cell: Cell, task: Task) -> Adapter:
    """The cell's method on a fresh source model, with the seed and source images it asks for."""
    given: dict[str, Any] = {}
    if asks_for(cell.method, "seed"):
        given["seed"] = cell.seed
    if asks_for(cell.method, "source_images") and task.source_images is not None:
        given["source_images"] = task.source_images()
    model = cell.compute.prepare(task.model())
    return create(cell.method, model, **given, **cell.options)


class Evaluation:
    """An adapter on a stream, with what it has predicted and done so far."""

    def __init__(self, cell: Cell, task: Task, stream: Stream) -> None:
        self.stream = stream
        self.resets = cell.setting.shift == "reset_each_shift"
        # CPU time, which other processes do not add to; a GPU's work does not show there.
        self.clock = time.process_time if cell.compute.is_cpu else time.perf_counter
        self.adapter = create_adapter(cell, task)
        self.done = 0  # batches
        self.seconds = 0.0
        self.predictions = torch.zeros(stream.samples, dtype=torch.int32)
        self.steps = torch.zeros(len(stream), len(STEP_FIELDS), dtype=torch.float64)

    def step(self, batch: Batch) -> None:
        """Predict a batch and adapt to it; the prediction made before adapting counts."""
        began = self.clock()
        if self.resets and self.stream.is_shift(self.done):
            self.adapter.reset()
        predicted = self.adapter(batch.images).argmax(dim=1).cpu()
        self.seconds += self.clock() - began
        start, end = self.stream.position(self.done), self.stream.position(self.done + 1)
        self.predictions[start:end] = predicted[start - end :]  # of the new images
        record = asdict(self.adapter.last)
        values = [float("nan") if record[name] is None else record[name] for name in STEP_FIELDS]
        self.steps[self.done] = torch.tensor(values, dtype=torch.float64)
        self.done += 1

    def record(self, start: int, end: int) -> dict[str, Tensor]:
        """What the calls from `start` to `end` did, by name."""
        return dict(zip(STEP_FIELDS, self.steps[start:end].T, strict=True))

    def numbers(self) -> dict[str, Any]:
        """What a `Result` says of the predictions and updates, by the names of its fields."""
        predictions = self.predictions.numpy()
        wrong = predictions != self.stream.labels
        errors = errors_by_domain(self.stream, wrong)
        window = window_size(self.stream)
        total = dict(zip(STEP_FIELDS, self.steps.sum(dim=0).tolist(), strict=True))
        return {
            "error": sum(errors.values()) / len(errors),
            "errors": errors,
            "window": window,
            "windows": tuple(errors_by_window(wrong, window)),
            "predictions": fingerprint(predictions),
            "updates": int(total["updated"]),
            "update_rate": total["updated"] / len(self.stream),
            "admitted": int(total["admitted"]),
            "skipped": int(total["skipped"]),
            "guard": self.guard_log(),
            "track_error": error_of_tracks(self.stream, predictions),
        }

    def guard_log(self) -> GuardLog | None:
        """What the guard has done so far; None without one."""
        if self.adapter.guard is None:
            return None
        record = self.record(0, self.done)
        ends = [self.stream.position(call) for call in range(self.done + 1)]
        images = torch.tensor(ends).diff()
        estimated = record["estimated_error"].repeat_interleave(images)
        parts = torch.split(estimated, window_size(self.stream))
        estimates = [100 * part.nanmean().item() for part in parts]
        rolled_back = record["rolled_back"].nonzero().flatten().tolist()
        return GuardLog(
            rollbacks=tuple(ends[call + 1] for call in rolled_back),
            estimates=tuple(None if math.isnan(found) else found for found in estimates),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume after the last batch."""
        return {
            "adapter": self.adapter.state_dict(),
            "done": self.done,
            "seconds": self.seconds,
            "predictions": self.predictions,
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; a state that does not fit raises a `ValueError` before anything changes."""
        done, seconds = state["done"], state["seconds"]
        if type(done) is not int or not 0 <= done <= len(self.stream):
            raise ValueError(f"done must be 0 to {len(self.stream)} batches, got {done!r}")
        if type(seconds) is not float or not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds must be a finite number from 0, got {seconds!r}")
        for name in ("predictions", "steps"):
            check_tensor(name, state[name], like=getattr(self, name))
        self.adapter.load_state_dict(state["adapter"])
        self.done, self.seconds = done, seconds
        self.predictions, self.steps = state["predictions"], state["steps"]


def check_tensor(name: str, found: Any, like: Tensor) -> None:
    """Refuse what is not a dense tensor of the expected shape and type."""
    if (
        not isinstance(found, Tensor)
        or (found.shape, found.dtype, found.layout) != (like.shape, like.dtype, like.layout)
        or found.device != like.device
    ):
        kind = f"{tuple(found.shape)} {found.dtype}" if isinstance(found, Tensor) else repr(found)
        raise ValueError(f"{name} must be {tuple(like.shape)} {like.dtype}, got {kind[:60]}")
