"""One run: read if it is finished, resumed if it was started, else started."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dab
from dab.benchmark.cell import Cell
from dab.benchmark.results.code import code_fingerprint
from dab.benchmark.results.identity import ComputeCard, DataCard, ModelCard, RunCard, ShardCard
from dab.benchmark.results.published import column, source_mismatch
from dab.benchmark.results.result import Result
from dab.benchmark.running import claims, memory
from dab.benchmark.running.checkpoint import (
    CHECKPOINT,
    load_checkpoint,
    refuse_checkpoint,
    save_checkpoint,
)
from dab.benchmark.running.evaluation import STEP_FIELDS, Evaluation, stream_of
from dab.benchmark.running.interrupts import Interrupts
from dab.benchmark.running.journal import Journal
from dab.benchmark.running.loggers import Logger
from dab.benchmark.running.progress_file import ProgressFile
from dab.benchmark.running.recorder import Recorder
from dab.benchmark.tasks.task import Task
from dab.data.images import Images
from dab.outputs.output import OUTPUTS
from dab.registry import asks_for
from dab.streams import Batch, Shard, Stream
from dab.utils import files
from dab.utils.files import Location
from dab.utils.fingerprint import fingerprint

__all__ = ["ClaimedError", "Interrupted", "Watch", "identity_card", "read_result", "run"]

logger = logging.getLogger("dab")

# The fields of a checkpoint.
STATE = {"adapter", "done", "seconds", "predictions", "steps", "recorder", "peak_memory"}

Watch = Callable[[Cell, int, int], None]
"""Called after each batch with the images seen and the images of the whole stream."""


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop and has left a checkpoint to resume from."""


class ClaimedError(RuntimeError):
    """Another process is executing the run."""


def run(
    cell: Cell,
    task: Task,
    out: Location,
    *,
    source_error: float | None,
    cache: Path | None = None,
    workers: int | None = None,
    checkpoint_every: int = 200,
    watch: Watch = lambda cell, seen, samples: None,
    loggers: Sequence[Logger] = (),
) -> Result:
    """The result of a cell: read if the run is finished, resumed if it was started, else started.

    Raises a `ClaimedError` if another process is executing the run.

    Args:
        cell: what to run.
        task: the model and images it names.
        out: the folder of all results, on disk or in an object store
            (`dab.utils.files.location`); the run gets a folder in it, named by its `RunCard`.
        source_error: of the source model on the same stream, in %, which the result is compared
            with; None for the source run itself.
        cache: folder for corrupted images; None for the user's.
        workers: processes that prefetch images; default: 1 if images must be generated, else 0.
        checkpoint_every: batches from one checkpoint to the next.
        watch: is told of the progress.
        loggers: are told the metrics of each window; see `dab.benchmark.running.loggers`.
    """
    if cell.data != task.name:
        raise ValueError(f"the cell is for {cell.data!r}, the task is {task.name!r}")
    if (source_error is None) != cell.is_source:
        raise ValueError(f"{cell}: source_error must be given for all runs but the source run")
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}")
    cell.compute.check()
    stream = stream_of(cell, task, cache)
    card = identity_card(cell, task, stream, source_error)
    folder = out / card.run_id
    if finished := read_result(folder, card):
        return finished
    claim = claims.try_claim(folder)
    if claim is None:
        owner = claims.holder(folder) or "another process"
        raise ClaimedError(f"{owner} is executing {folder}")
    with claim:
        if finished := read_result(folder, card):  # meanwhile
            return finished
        files.remove_unfinished(folder)
        if workers is None:
            workers = 0 if stream.ready else cell.compute.readers
        with cell.compute.threading():
            started = _Run(cell, task, stream, card, folder)
            return started.finish(workers, checkpoint_every, watch, loggers)


def read_result(folder: Location, card: RunCard) -> Result | None:
    """The result of a run, if it has finished, with its card as of now.

    What the result is compared with may have changed since it was written.
    """
    finished = Result.read(folder)
    return None if finished is None else replace(finished, card=card)


class _Run:
    """An evaluation with everything around it that does not change its numbers."""

    def __init__(
        self, cell: Cell, task: Task, stream: Stream, card: RunCard, folder: Location
    ) -> None:
        self.cell, self.stream, self.card, self.folder = cell, stream, card, folder
        self.evaluation = Evaluation(cell, task, stream)
        self.recorder = Recorder(stream)
        self.progress = ProgressFile(folder, card, stream)
        self.peak_memory = 0.0
        self._resume()
        memory.restart_peak()

    def finish(
        self, workers: int, checkpoint_every: int, watch: Watch, loggers: Sequence[Logger]
    ) -> Result:
        """Go over the rest of the stream and write the result into the folder."""
        evaluation, stream = self.evaluation, self.stream
        journal = Journal(loggers, self.card, stream, evaluation.done)
        with Interrupts() as interrupts, journal:
            device = self.cell.compute.device
            batches = stream.batches(evaluation.done, workers, device)
            for batch in _until_interrupted(batches, interrupts):
                evaluation.step(batch)
                self.recorder.note(batch, evaluation)
                self.progress.tell(evaluation)
                journal.note(evaluation)
                watch(self.cell, stream.position(evaluation.done), stream.samples)
                if evaluation.done % checkpoint_every == 0:
                    self._save()
            if evaluation.done < len(stream):
                self._save()
                self.progress.tell(evaluation, now=True)
                raise Interrupted(f"stopped after {evaluation.done} of {len(stream)} batches")
            self._write_trace()
            result = self._result()
            result.write(self.folder)
            (self.folder / CHECKPOINT).unlink(missing_ok=True)
            self.progress.end()
            journal.finish(result)
        if mismatch := source_mismatch(result):
            logger.warning(mismatch)
        if interrupts.requested:  # in the last batch; more runs may follow
            raise Interrupted(f"stopped after {len(stream)} of {len(stream)} batches")
        return result

    def _save(self) -> None:
        self.peak_memory = max(self.peak_memory, memory.peak_mib())  # without the copies made here
        save_checkpoint(self.folder, self.card, self._state())
        memory.restart_peak()

    def _state(self) -> dict[str, Any]:
        return {
            **self.evaluation.state_dict(),
            "recorder": self.recorder.state_dict(),
            "peak_memory": self.peak_memory,
        }

    def _resume(self) -> None:
        state = load_checkpoint(self.folder, self.card)
        if state is None:
            return
        try:
            if state.keys() != STATE:
                differing = ", ".join(sorted(map(str, state.keys() ^ STATE)))
                raise ValueError(f"unexpected or missing fields: {differing}")
            peak = state["peak_memory"]
            if type(peak) is not float or not 0 <= peak < float("inf"):
                raise ValueError(f"peak_memory must be a finite number from 0, got {peak!r}")
            recorder = Recorder(self.stream)
            recorder.load_state_dict(state["recorder"])
            self.evaluation.load_state_dict(state)
        except Exception as error:  # whatever a method's own state makes of it
            refuse_checkpoint(self.folder, error)
            return
        self.recorder, self.peak_memory = recorder, peak

    def _write_trace(self) -> None:
        """Write every prediction, what each call did, and what the recorder noted.

        Also `domain_sizes`, the number of images of each domain, and `share_names`, what the
        output correction's shares are of.
        """
        stream, evaluation = self.stream, self.evaluation
        arrays = {
            "predictions": evaluation.predictions.numpy(),
            **dict(zip(STEP_FIELDS, evaluation.steps.numpy().T, strict=True)),
            "domain_sizes": np.bincount(stream.domain, minlength=len(stream.domains)),
            **self.recorder.arrays(),
        }
        if "shares" in arrays and (output := evaluation.adapter.output) is not None:
            arrays["share_names"] = np.array(list(output.shares()))
        with files.aside(self.folder / "trace.npz") as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def _result(self) -> Result:
        seconds = self.evaluation.seconds
        return Result(
            card=self.card,
            **self.evaluation.numbers(),
            seconds=seconds,
            images_per_second=self.stream.samples / seconds,
            peak_memory_mib=max(self.peak_memory, memory.peak_mib()),
        )


def _until_interrupted(batches: Iterator[Batch], interrupts: Interrupts) -> Iterator[Batch]:
    """The batches, as far as they come before a request to stop.

    The signal may have reached the loader's workers too. The loader then fails in one of many ways,
    EOFError, OSError and RuntimeError among them.
    """
    while not interrupts.requested:
        try:
            batch = next(batches, None)
        except Exception:
            if not interrupts.requested:
                raise
            return
        if batch is None:
            return
        yield batch


def identity_card(cell: Cell, task: Task, stream: Stream, source_error: float | None) -> RunCard:
    """The identity of a run; its ids do not depend on `source_error`."""
    model = dict(task.model_card)
    return RunCard(
        method=cell.method,
        code=code_fingerprint(frozenset(_classes(cell, task, stream))),
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


def _classes(cell: Cell, task: Task, stream: Stream) -> Iterable[type]:
    """The classes of the method, its output correction, the model's layers and the images.

    The code of these is hashed.
    """
    yield dab.method(cell.method)
    if isinstance(output := cell.all_options().get("output"), str):
        yield OUTPUTS[output]
    yield from task.layers
    for images in stream.parts:
        yield from _image_classes(images)


def _image_classes(images: Images) -> Iterable[type]:
    """The class of images, and of those that they are made from."""
    yield type(images)
    for inner in vars(images).values():
        if hasattr(inner, "batch") and hasattr(inner, "labels"):
            yield from _image_classes(inner)


def _shard(shard: Shard | None, stream: Stream) -> ShardCard | None:
    if shard is None:
        return None
    shown = Counter(stream.domains[domain] for domain in stream.domain.tolist())
    return ShardCard(shard.pieces, shard.kind, shard.number, dict(shown))


def _source_images(cell: Cell, task: Task) -> str | None:
    """A hash of the training images that a method is given."""
    if task.source_images is None or not asks_for(cell.method, "source_images"):
        return None
    return fingerprint(task.source_images().numpy())


def _plain(cell: Cell, name: str) -> Any:
    value = cell.all_options()[name]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(
        f"{cell.method}'s option {name} must be a plain value in a benchmark, got {value!r}"
    )
