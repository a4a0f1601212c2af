"""Predict, count, adapt: one method over one stream, resumable at any moment."""

from __future__ import annotations

import inspect
import logging
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dab
from dab.adapter import Adapter
from dab.benchmark.cell import Cell
from dab.benchmark.results.identity import ComputeCard, DataCard, ModelCard, RunCard, ShardCard
from dab.benchmark.results.published import column, source_mismatch
from dab.benchmark.results.result import (
    Result,
    errors_by_domain,
    errors_by_window,
    window_size,
)
from dab.benchmark.running import memory
from dab.benchmark.running.interrupts import Interrupts
from dab.benchmark.running.loggers import Journal, Logger
from dab.benchmark.running.progress_file import ProgressFile
from dab.benchmark.running.recorder import Recorder
from dab.benchmark.tasks.task import Task
from dab.parts.step import Step
from dab.streams import Batch, Shard, Stream
from dab.utils import files
from dab.utils.files import Location
from dab.utils.fingerprint import fingerprint

__all__ = ["Interrupted", "Watch", "run", "stream_of"]

logger = logging.getLogger("dab")

CHECKPOINT = "checkpoint.pt"
# What methods are made of besides their own files, and the shipped models.
SHARED = (
    "*.py",
    "parts/*.py",
    "augmentations/*.py",
    "buffers/*.py",
    "outputs/*.py",
    "models/vit.py",
)
STEP_FIELDS = [field.name for field in fields(Step)]

Watch = Callable[[Cell, int, int], None]
"""Called after each batch with the images seen and the images of the whole stream."""


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop and has left a checkpoint to go on from."""


def run(
    cell: Cell,
    task: Task,
    out: Location,
    *,
    cache: Path | None = None,
    workers: int | None = None,
    checkpoint_every: int = 200,
    watch: Watch = lambda cell, seen, samples: None,
    loggers: Sequence[Logger] = (),
) -> Result:
    """The result of a cell: read if it is there, continued if it was begun, else run.

    The source model is run first on the same stream, if it has not been: its error is part of
    every other run's identity, and what they are compared with.

    Args:
        cell: what to run.
        task: the model and images it names.
        out: the folder of all results, on disk or in an object store
            (`dab.utils.files.location`); the run gets a folder in it, named by its identity card.
        cache: folder for corrupted images; None for the user's.
        workers: processes that make images ahead; None for one if any are still to be made.
        checkpoint_every: batches from one checkpoint to the next.
        watch: is told of the progress.
        loggers: are told what each window was like; see `dab.benchmark.running.loggers`.
    """
    if cell.data != task.name:
        raise ValueError(f"the cell is for {cell.data!r}, the task is {task.name!r}")
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
    cell.compute.check()
    stream = stream_of(cell, task, cache)
    source_error = None
    if not cell.is_source:
        source_error = run(
            cell.source(),
            task,
            out,
            cache=cache,
            workers=workers,
            checkpoint_every=checkpoint_every,
            watch=watch,
            loggers=loggers,
        ).error
    card = identity_card(cell, task, stream, source_error)
    folder = out / card.run_id
    if finished := Result.read(folder):
        return finished
    files.remove_unfinished(folder)
    if workers is None:
        workers = 0 if stream.ready else cell.compute.readers
    with cell.compute.threading():
        evaluation = Evaluation(cell, task, stream)
        return _evaluate(evaluation, card, folder, workers, checkpoint_every, watch, loggers)


def _evaluate(
    evaluation: Evaluation,
    card: RunCard,
    folder: Location,
    workers: int,
    checkpoint_every: int,
    watch: Watch,
    loggers: Sequence[Logger],
) -> Result:
    """Go over the rest of the stream and leave the result in the folder."""
    cell, stream = evaluation.cell, evaluation.stream
    evaluation.resume(folder / CHECKPOINT)
    progress = ProgressFile(folder, card, stream)
    memory.restart_peak()
    journal = Journal(loggers, card, stream, evaluation.done)
    with Interrupts() as interrupts, journal:
        try:
            for batch in stream.batches(evaluation.done, workers, cell.compute.device):
                evaluation.step(batch)
                progress.tell(evaluation.done, evaluation.predictions)
                journal.note(evaluation)
                watch(cell, stream.position(evaluation.done), stream.samples)
                if interrupts.requested and evaluation.done < len(stream):
                    evaluation.save(folder / CHECKPOINT)
                    progress.tell(evaluation.done, evaluation.predictions, now=True)
                    raise Interrupted(f"stopped after {evaluation.done} of {len(stream)} batches")
                if evaluation.done % checkpoint_every == 0:
                    evaluation.save(folder / CHECKPOINT)
        except RuntimeError as error:
            if not interrupts.requested:
                raise
            # The signal went to a worker too, and the loader reports its end wherever we are, maybe
            # in the middle of an update: the last checkpoint is what is left.
            raise Interrupted("stopped while images were being made") from error
        evaluation.write_trace(folder)
        result = evaluation.result(card)
        result.write(folder)
        (folder / CHECKPOINT).unlink(missing_ok=True)
        progress.end()
        journal.finish(result)
    if doubt := source_mismatch(result):
        logger.warning(doubt)
    if interrupts.requested:  # in the last batch; there may be other runs to come
        raise Interrupted(f"stopped after {len(stream)} of {len(stream)} batches")
    return result


def stream_of(cell: Cell, task: Task, cache: Path | None) -> Stream:
    """What a cell's method is shown."""
    domains = task.data.domains(cell.corruptions, cell.severity, cell.setting, cache)
    return Stream(domains, cell.setting, cell.seed, cell.batch_size, cell.shard)


def identity_card(cell: Cell, task: Task, stream: Stream, source_error: float | None) -> RunCard:
    """Everything that the numbers of a run depend on."""
    model = dict(task.model_card)
    return RunCard(
        method=cell.method,
        code=_code(cell.method),
        options={name: _plain(cell, name) for name in cell.all_options()},
        data=DataCard(
            name=task.name,
            images=stream.fingerprint,
            samples=stream.samples,
            domains=tuple(stream.domains),
            severity=cell.severity,
        ),
        model=ModelCard(model.pop("name"), task.weights, model),
        compute=ComputeCard(**cell.compute.card),
        setting=str(cell.setting),
        seed=cell.seed,
        batch_size=cell.batch_size,
        versions={"dab": dab.__version__, "torch": torch.__version__, "numpy": np.__version__},
        source_error=source_error,
        source_images=_source_images(cell, task),
        published_as=column(cell, task),
        shard=_shard(cell.shard, stream),
    )


def _shard(shard: Shard | None, stream: Stream) -> ShardCard | None:
    if shard is None:
        return None
    shown = Counter(stream.domains[domain] for domain in stream.domain.tolist())
    return ShardCard(shard.pieces, shard.kind, shard.number, dict(shown))


def _code(method: str) -> str:
    """A hash of the file that a method is written in, and of those that all methods share."""
    package = Path(dab.__file__).parent
    shared = [file for pattern in SHARED for file in sorted(package.glob(pattern))]
    own = Path(inspect.getfile(dab.method(method)))
    return fingerprint(*(file.read_text() for file in [own, *shared]))


def _source_images(cell: Cell, task: Task) -> str | None:
    """A hash of the training images that a method is given."""
    if "source_images" not in inspect.signature(dab.method(cell.method)).parameters:
        return None
    return None if task.source_images is None else fingerprint(task.source_images().numpy())


def _plain(cell: Cell, name: str) -> Any:
    value = cell.all_options()[name]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{cell.method}'s option {name} must be a plain value in a benchmark, got {value!r}"
    )


class Evaluation:
    """An adapter on its way over a stream, with what it has predicted and done so far."""

    def __init__(self, cell: Cell, task: Task, stream: Stream) -> None:
        self.cell, self.stream = cell, stream
        self.resets = cell.setting.shift == "reset_each_shift"
        # On the processor, what others do is none of a run's cost; elsewhere it is not counted.
        self.clock = time.process_time if cell.compute.is_cpu else time.perf_counter
        self.adapter = _adapter(cell, task)
        self.done = 0  # batches
        self.seconds = 0.0
        self.peak_memory = 0.0
        self.predictions = torch.zeros(stream.samples, dtype=torch.int32)
        self.steps = torch.zeros(len(stream), len(STEP_FIELDS), dtype=torch.float64)
        self.recorder = Recorder(stream)

    def step(self, batch: Batch) -> None:
        """The prediction counts that was made before the adapter learned from the batch."""
        began = self.clock()
        if self.resets and self.stream.is_shift(self.done):
            self.adapter.reset()
        predicted = self.adapter(batch.images).argmax(dim=1).cpu()
        self.seconds += self.clock() - began
        at = self.stream.position(self.done)
        self.predictions[at : at + len(predicted)] = predicted
        record = asdict(self.adapter.last)
        record["loss"] = float("nan") if record["loss"] is None else record["loss"]
        self.steps[self.done] = torch.tensor(list(record.values()), dtype=torch.float64)
        admitted = self.steps[: self.done + 1, STEP_FIELDS.index("admitted")]
        self.recorder.note(self.done, batch, self.adapter, admitted)
        self.done += 1

    def record(self, start: int, end: int) -> dict[str, torch.Tensor]:
        """What each call from one number to another did, by name."""
        return dict(zip(STEP_FIELDS, self.steps[start:end].T, strict=True))

    def save(self, file: Location) -> None:
        """Leave everything behind that is needed to go on after the last batch."""
        self.peak_memory = max(self.peak_memory, memory.peak_mib())  # but for the copies made here
        state = {
            "adapter": self.adapter.state_dict(),
            "done": self.done,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
            "predictions": self.predictions,
            "steps": self.steps,
            "recorder": self.recorder.state_dict(),
        }
        with files.aside(file) as unfinished:
            torch.save(state, unfinished)
        del state
        memory.restart_peak()

    def resume(self, file: Location) -> None:
        """Go on from a checkpoint, if there is one."""
        if not file.exists():
            return
        try:
            with file.open("rb") as opened:
                if damaged := zipfile.ZipFile(opened).testzip():  # torch compares no checksums
                    raise ValueError(f"its {damaged} is damaged")
                opened.seek(0)
                state = torch.load(opened, map_location="cpu", weights_only=True)
            recorder = state.pop("recorder")
            self.adapter.load_state_dict(state.pop("adapter"))
        except Exception as error:  # torch.load fails in many ways on a damaged file
            logger.warning("%s cannot be read, so the run starts again: %s", file, error)
            return
        self.recorder.load_state_dict(recorder)
        vars(self).update(state)

    def write_trace(self, folder: Location) -> None:
        """Every prediction, what each call did, and what the buffer held, for a look into the run.

        Besides, `domain_sizes`: how many images each domain has.
        """
        arrays = {
            "predictions": self.predictions.numpy(),
            **dict(zip(STEP_FIELDS, self.steps.numpy().T, strict=True)),
            "domain_sizes": np.bincount(self.stream.domain, minlength=len(self.stream.domains)),
            **self.recorder.arrays(),
        }
        with files.aside(folder / "trace.npz") as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def result(self, card: RunCard) -> Result:
        wrong = self.predictions.numpy() != self.stream.labels
        errors = errors_by_domain(self.stream, wrong)
        window = window_size(self.stream)
        total = dict(zip(STEP_FIELDS, self.steps.sum(dim=0).tolist(), strict=True))
        return Result(
            card=card,
            error=sum(errors.values()) / len(errors),
            errors=errors,
            window=window,
            windows=tuple(errors_by_window(wrong, window)),
            predictions=fingerprint(self.predictions.numpy()),
            updates=int(total["updated"]),
            update_rate=total["updated"] / len(self.stream),
            admitted=int(total["admitted"]),
            skipped=int(total["skipped"]),
            seconds=self.seconds,
            images_per_second=self.stream.samples / self.seconds,
            peak_memory_mib=max(self.peak_memory, memory.peak_mib()),
        )


def _adapter(cell: Cell, task: Task) -> Adapter:
    """The cell's method around a fresh source model, with whatever it asks for beside options."""
    asked = inspect.signature(dab.method(cell.method)).parameters
    given: dict[str, Any] = {}
    if "seed" in asked:
        given["seed"] = cell.seed
    if "source_images" in asked and task.source_images is not None:
        given["source_images"] = task.source_images()
    model = cell.compute.prepare(task.model())
    return dab.create(cell.method, model, **given, **cell.options)
