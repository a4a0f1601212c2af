"""What a grid takes, before it is begun: runs, images, hours."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import nn

import dab
from dab.benchmark.cell import Cell
from dab.benchmark.compute import Compute
from dab.benchmark.engines.job import Job
from dab.benchmark.tasks.task import ON_DISK, TaskRecipe
from dab.data.images import to_tensor

__all__ = ["Share", "estimate", "forwards", "images_per_second"]

MEASURED = 2  # batches, after one to warm up
CPU_BATCH = 16  # a processor is not faster with more, and takes seconds for each


class Share(NamedTuple):
    """A data set's share of a grid in one setting."""

    data: str
    setting: str
    runs: int
    images: int  # of all runs
    forwards: float  # that they cost
    hours: float  # on one device


def forwards(cell: Cell) -> float:
    """About how many plain forwards an image costs in a cell.

    >>> forwards(Cell("tent"))
    2.2
    """
    return dab.method(cell.method).forwards


def estimate(jobs: Iterable[Job]) -> list[Share]:
    """The shares of a grid; the time from a short measurement of each model's plain forward."""
    grids: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        grids.setdefault((job.cell.data, str(job.cell.setting)), []).append(job)
    speeds: dict[TaskRecipe, float] = {}
    shares = []
    for (data, setting), share in grids.items():
        first = share[0]
        if first.task not in speeds:
            speeds[first.task] = images_per_second(*_model(first), first.cell.compute)
        images = _images(first)  # which seed or method it is makes no difference
        cost = images * sum(forwards(job.cell) for job in share)
        hours = cost / speeds[first.task] / 3600
        shares.append(Share(data, setting, len(share), images * len(share), cost, hours))
    return shares


@torch.inference_mode()
def images_per_second(model: nn.Module, shape: Sequence[int], compute: Compute) -> float:
    """How many images of a shape a model predicts in a second here."""
    model = compute.prepare(model.eval())
    images = torch.rand(CPU_BATCH if compute.is_cpu else 64, *shape, device=compute.device)
    model(images)
    began = time.perf_counter()
    for _ in range(MEASURED):
        model(images).cpu()  # which waits for the device
    return MEASURED * len(images) / (time.perf_counter() - began)


def _images(job: Job) -> int:
    """The images of a run: those that are there, or, if no folder is named, the published ones."""
    if job.task.name in ON_DISK and job.task.root is None:
        from dab.benchmark.tasks.imagenet import published_images

        return published_images(job.cell, job.task.samples)
    return job.stream().samples


def _model(job: Job) -> tuple[nn.Module, Sequence[int]]:
    """A model to measure, and the shape of its images."""
    if job.task.name in ON_DISK:
        from dab.benchmark.tasks.imagenet import timing_model

        return timing_model(job.task)
    return job.task.create().model(), to_tensor(job.stream().pixels(0)).shape[1:]
