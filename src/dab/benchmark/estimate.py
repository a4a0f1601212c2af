"""What a grid costs, before it runs: cells, images, hours."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from dab.benchmark.compute import Compute
from dab.benchmark.engines.job import Job
from dab.benchmark.results.tables import Entry, Line
from dab.benchmark.tasks.registry import task_factory

__all__ = ["Share", "Time", "count_lines", "images_per_second", "shares", "times"]

LARGEST_BATCH = 64  # as most runs have
ENOUGH = 0.5  # seconds of a batch that are measured well enough


class Share(NamedTuple):
    """The cells of a grid on one data set in one setting."""

    data: str
    setting: str
    runs: int
    images: int  # of all runs
    forwards: float  # plain forward passes that they cost


class Time(NamedTuple):
    """How fast the model of a data set predicts, and how long all its runs take."""

    data: str
    images_per_second: float
    hours: float  # on one device, without the time to read or make images


def shares(jobs: Iterable[Job]) -> list[Share]:
    """The counts of a grid, without a measurement."""
    grids: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        grids.setdefault((job.cell.data, str(job.cell.setting)), []).append(job)
    found = []
    for (data, setting), share in grids.items():
        # Pieces add up to their stream; the seed and the method make no difference.
        images = _images(share[0])
        runs = [job for job in share if job.cell.shard is None or job.cell.shard.number == 0]
        cost = images * sum(job.cell.forwards for job in runs)
        found.append(Share(data, setting, len(share), images * len(runs), cost))
    return found


def count_lines(counts: Sequence[Share]) -> list[Line]:
    """The counts as a table, with their totals last."""
    runs, images, forwards = (sum(column) for column in [*zip(*counts, strict=True)][2:])
    lines = [*counts, Share("all", "", runs, images, forwards)]
    return [
        [Entry(name) for name in Share._fields],
        *([Entry(e if isinstance(e, str) else f"{e:,.0f}") for e in line] for line in lines),
    ]


def times(jobs: Sequence[Job], counts: Iterable[Share]) -> Iterator[Time]:
    """The time of each data set's runs; the speeds of models are measured one after the other."""
    forwards: dict[str, float] = defaultdict(float)
    for share in counts:
        forwards[share.data] += share.forwards
    known: dict[tuple[object, ...], float] = {}
    recipes = {job.task: job.cell.compute for job in jobs}
    for recipe, compute in recipes.items():
        factory = task_factory(recipe.name)
        model = recipe.model or factory.default_model
        key = (model or recipe, compute)  # several data sets may share a model
        if key not in known:
            known[key] = images_per_second(*factory.timing_model(recipe), compute)
        yield Time(recipe.name, known[key], forwards[recipe.name] / known[key] / 3600)


@torch.inference_mode()
def images_per_second(model: nn.Module, shape: Sequence[int], compute: Compute) -> float:
    """How many images of a shape a model predicts per second on this machine."""
    model = compute.prepare(model.eval())
    size, seconds = 1, 0.0
    with compute.threading():
        while True:
            images = torch.rand(size, *shape, device=compute.device)
            for _ in range(2):  # the first warms up
                began = time.perf_counter()
                model(images).cpu()  # waits for the device
                seconds = time.perf_counter() - began
            # A large model takes seconds for a large batch, and is no faster per image.
            if size == LARGEST_BATCH or seconds > ENOUGH:
                return size / seconds
            size *= 2


def _images(job: Job) -> int:
    """The images of a job's whole stream: as published if no folder is named."""
    known = task_factory(job.task.name).count(job.cell, job.task)
    if known is not None:
        return known
    return replace(job, cell=replace(job.cell, shard=None)).stream().samples
