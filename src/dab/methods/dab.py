"""DAB: a diversity-aware buffer for temporally correlated streams (Döbler et al., 2024)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.adapter import Adapter
from dab.buffers import BalancedPolicy, Buffer, ImageStorage, StorageKind, Trigger, TriggerKind
from dab.common import Training
from dab.parts.ema import RunningMean
from dab.parts.functional import (
    certainty,
    diversity,
    entropy,
    follow,
    min_max,
    probabilities,
    uniform,
)
from dab.parts.options import Capacity, Count, Device, Share
from dab.parts.schema import Tendency
from dab.registry import register

__all__ = ["DAB", "Memory"]

Admission = Literal["batch", "running"]
Filling = Literal["wait", "adapt"]
Labels = Literal["model", "sequence"]


@dataclass
class Memory:
    """What DAB remembers of its stream."""

    tendency: Annotated[Tensor, Tendency()]  # e: what the stream has shown recently
    batch_tendency: Annotated[Tensor, Tendency()]  # b: what has been trained on recently
    mean_diversity: RunningMean  # only changes with admission="running"
    buffer: Buffer
    trigger: Trigger


@register("dab")
class DAB(Adapter):
    """Adapts the normalization layers on balanced, diverse batches from a small buffer.

    Args:
        model: any image classifier that returns (n, C) logits.
        capacity: M, the number of images in the buffer. Nothing adapts before it is full, unless
            filling="adapt".
        batch_size: N, the number of images trained on in an update, whatever the size of a call.
        ensemble: weight of the adapted parameters when averaged with the source after each update.
        admission: a sample is admitted if it is more diverse than the mean of its "batch" (the
            paper), or than the "running" mean over the stream. In a call with a single sample
            the batch mean is the sample itself, so nothing is ever admitted: use "running",
            the default for batch_size=1 and a departure from the paper.
        trigger: which classes count toward an update; see `dab.buffers.Trigger`.
        filling: "wait" with updates until the buffer is full (the paper's wording taken
            literally), or "adapt" from the start: a sample in an empty slot then counts as
            having replaced a sample of its own class.
        labels: of the images in the buffer: what the "model" predicts (the paper), or what the
            order of the stream makes of that, the "sequence": the predictions after the output
            correction, which is then the Markov prior if none is given.
        storage: how the buffer keeps images; see `dab.buffers.ImageStorage`.
        device: where the buffer keeps images (default: the device of the first ones).
        **common: options that methods share; see `dab.common.Training`.

    >>> _ = torch.manual_seed(0)  # a random net may predict one class for everything
    >>> images = torch.rand(500, 3, 8, 8)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.LayerNorm(64), nn.Linear(64, 10))
    >>> adapter = DAB(model, capacity=16, batch_size=8)
    >>> for batch in images.split(50):
    ...     logits = adapter(batch)
    >>> logits.shape, adapter.last.fill, adapter.totals.updates > 0
    (torch.Size([50, 10]), 16, True)
    """

    title = "DAB"
    paper = "Döbler et al., Diversity-aware Buffer for Coping with Temporally Correlated Data "
    paper += "Streams in Online Test-time Adaptation, arXiv 2401.00989"
    year = 2024
    color = 9
    forwards = 2.9
    passes = (2, 1)
    learns_from_buffer = True
    published = Training(statistics="ema")  # the paper avoids BatchNorm

    def __init__(
        self,
        model: nn.Module,
        capacity: Capacity = 1024,
        *,
        batch_size: Count = 64,
        ensemble: Share = 0.99,
        admission: Admission | None = None,
        trigger: TriggerKind = "outgoing",
        filling: Filling = "wait",
        labels: Labels = "model",
        storage: StorageKind = "auto",
        device: Device = None,
        **common: Unpack[Training],
    ) -> None:
        if admission is None:
            admission = "running" if batch_size == 1 else "batch"
        self.capacity, self.batch_size, self.ensemble = capacity, batch_size, ensemble
        self.admission, self.filling, self.labels = admission, filling, labels
        self._make_storage = partial(ImageStorage, self.capacity, storage, device)
        self._make_trigger = partial(Trigger, trigger, batch_size)
        if labels == "sequence" and common.get("output") is None:
            common["output"] = "markov"
        super().__init__(model, **common)

    def begin(self, classes: int) -> Memory:
        return Memory(
            tendency=uniform(classes),
            batch_tendency=uniform(classes),
            mean_diversity=RunningMean(),
            buffer=Buffer(BalancedPolicy(self.capacity, classes), self._make_storage()),
            trigger=self._make_trigger(classes),
        )

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        """Algorithm 1: fill the buffer with what is diverse, update when enough was replaced."""
        all_labels = self.pseudo_labels(logits)
        memory: Memory = self.memory
        y = probabilities(logits)
        # Diversity against what the stream has shown recently: w_i = 1 - cos(y_i, e).
        w = diversity(y, memory.tendency)
        if self.admission == "batch":
            self._warn_of_single_samples(len(images))
            admitted = (w > w.mean()).nonzero().flatten()
        else:
            means = memory.mean_diversity.follow(w.tolist())
            admitted = (w > torch.tensor(means, dtype=w.dtype, device=w.device)).nonzero().flatten()
        labels = all_labels[admitted].tolist()
        placements = memory.buffer.insert(images[admitted], labels)
        # Only now, and over all samples of the batch: e <- 0.9 e + 0.1 mean_i(y_i).
        memory.tendency = follow(memory.tendency, y)

        for label, placement in zip(labels, placements, strict=True):
            assert placement is not None  # every sample is admitted
            if placement.evicted is not None:
                self.last.replaced += 1
                memory.trigger.count(incoming=label, outgoing=placement.evicted)
            elif self.filling == "adapt":
                memory.trigger.count(incoming=label, outgoing=label)
        self.last.admitted, self.last.fill = len(labels), len(memory.buffer)
        if self.is_due():
            for _ in range(self.steps):
                self._update(memory, images.device)
            memory.trigger.clear()
        return logits

    def pseudo_labels(self, logits: Tensor) -> Tensor:
        """The label of each image: of the model, or of what the call returns."""
        return (logits if self.labels == "model" else self.believe(logits)).argmax(dim=1)

    def is_due(self) -> bool:
        """Whether to update, at the end of a call."""
        memory: Memory = self.memory
        # A trigger resumed without its buffer waits for the buffer to fill again.
        ready = self.filling == "adapt" or len(memory.buffer) == self.capacity
        return memory.trigger.due and ready

    def progress(self) -> str:
        """How full the buffer is, then how many replacements the next update is waiting for."""
        fill, count, threshold = self.last.fill, 0, 1
        if self.memory is not None:
            fill = len(self.memory.buffer)
            count, threshold = self.memory.trigger.counted, self.memory.trigger.threshold
        if fill < self.capacity and self.filling == "wait":
            filling = f"filling: {fill:,} of {self.capacity:,} images"
            if not self.totals.admitted:
                if self.admission == "batch" and self.totals.samples == self.totals.calls:
                    return (
                        f"{filling}; single images are never admitted: pass batches, or use "
                        'admission="running"'
                    )
                return filling
            wanted = (self.capacity - fill + threshold) * self.totals.samples
            which = "next" if self.totals.updates else "first"
            return f"{filling}, {which} update in about {wanted // self.totals.admitted:,} images"
        what = "images" if self.memory and self.memory.trigger.kind == "any" else "classes"
        return f"waiting: {count:,} of {threshold:,} {what} replaced since the last update"

    def _update(self, memory: Memory, device: torch.device) -> None:
        images = memory.buffer.sample(self.batch_size, self.generator, device)
        with torch.enable_grad():
            logits = self.run(images)
            loss = self.loss(logits)
        if self.step(images, logits, loss):
            # b, as e
            memory.batch_tendency = follow(memory.batch_tendency, probabilities(logits))
            self.trained.ensemble(self.ensemble)  # theta <- 0.99 theta + 0.01 theta_0

    def step(self, images: Tensor, logits: Tensor, loss: Tensor) -> bool:
        """One step on the images; False if none was taken."""
        return self.learn(loss)

    def loss(self, logits: Tensor) -> Tensor:
        """L = 1/n sum_i w_i H(y_i) of a batch from the buffer."""
        entropies = entropy(logits)
        y = probabilities(logits)
        # Diversity against what was trained on recently, scaled to [0, 1] over the batch ...
        w_div = min_max(diversity(y, self.memory.batch_tendency))
        # ... and certainty, log C / H(y_i) in [1, 10]; both detached, because w_cert * H with
        # a gradient is the constant log C.
        w_cert = certainty(entropies.detach(), y.shape[1])
        w = w_cert * w_div.exp()
        return (w * entropies).mean()

    def _warn_of_single_samples(self, samples: int) -> None:
        if samples == self.totals.calls == self.totals.samples == 1:
            warnings.warn(
                "calls with one sample each: no sample is more diverse than the mean of itself, so "
                'nothing will ever be learned; use admission="running"',
                stacklevel=2,
            )
