"""Puts a server together from what a user names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from starlette.applications import Starlette

import dab
from dab.fleet import Fleet
from dab.fleet.shelf import Shelf
from dab.models.loading import load_model
from dab.serve.app import Served, application
from dab.serve.limits import Limits
from dab.serve.service import Service
from dab.utils import allocator
from dab.utils.text import assignments

__all__ = ["Plan", "build", "create"]

# Nothing would ever be admitted by comparison with the other images of a request.
SINGLE_IMAGES = {"admission": "running"}


@dataclass(frozen=True)
class Plan:
    """What is served, and how.

    Args:
        model: as for `dab.load_model`.
        method: that adapts it.
        options: of the method; `admission` is "running" if not given.
        name: of the model in URLs; None: taken from `model`.
        labels: names of the classes.
        device: of the model.
        threads: of torch; None: as they are.
        folder: where states are saved; None: nowhere.
        in_memory: streams; None: all.
        save_every: see `Service`.
        limits: how much is accepted.
    """

    model: str
    method: str
    options: Mapping[str, Any]
    name: str | None = None
    labels: Sequence[str] | None = None
    device: str = "cpu"
    threads: int | None = None
    folder: str | None = None
    in_memory: int | None = None
    save_every: int = 10
    limits: Limits = field(default_factory=Limits)


def build(plan: Plan, *, token: str | None = None, hosts: Collection[str] = ()) -> Starlette:
    """The application that serves a model.

    Args:
        plan: what is served, and how.
        token: that requests must have; None: anyone may ask.
        hosts: names that clients may use for the server.
    """
    fleet, served = create(plan, plan.folder)
    save_every = plan.save_every if plan.folder else None
    service = Service(fleet, limits=plan.limits, save_every=save_every)
    return application(service, served, token=token, hosts=hosts)


def create(plan: Plan, folder: str | Shelf | None) -> tuple[Fleet, Served]:
    """The model with its streams, and as clients see it.

    Args:
        plan: what is served, and how.
        folder: where streams are saved; None: nowhere.
    """
    images, in_memory = plan.limits.images, plan.in_memory
    if in_memory is not None and in_memory < images:
        raise ValueError(
            f"a batch may have {images} streams, but only {in_memory} stay in memory: keep "
            "more, or make batches smaller"
        )
    allocator.keep_freed()  # a server's passes are all alike
    if plan.threads is not None:
        torch.set_num_threads(plan.threads)
    net, transform, card = load_model(plan.model)
    classes, labels = card["classes"], plan.labels
    if labels is not None and len(labels) != classes:
        raise ValueError(f"the model has {classes} classes, but there are {len(labels)} labels")
    options = _options(plan.method, plan.options)
    limit = None if folder is None else in_memory
    fleet = Fleet(net.to(plan.device), plan.method, folder=folder, limit=limit, **options)
    served = Served(
        name=plan.name or _name(plan.model),
        transform=transform,
        classes=classes,
        method=" ".join([plan.method, *assignments(options)]),
        labels=labels,
    )
    return fleet, served


def _options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method for requests of one image each."""
    known = inspect.signature(dab.method(method)).parameters
    suitable = {name: value for name, value in SINGLE_IMAGES.items() if name in known}
    return {**suitable, **given}


def _name(model: str) -> str:
    """The name of a model in URLs.

    >>> _name("timm/vit_tiny_patch16_224@weights.pth"), _name("path/to/mine.py:load")
    ('vit_tiny_patch16_224', 'mine')
    """
    last = model.partition("@")[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.-]+", "-", last.partition(":")[0].removesuffix(".py")) or "model"
