"""Sequence DAB: DAB that reads labels off the order of the stream, and starts over at shifts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.buffers import Budget, StorageKind
from dab.common import Training
from dab.guard.signals import Comparison
from dab.methods.dab import DAB
from dab.methods.dab import Memory as DABMemory
from dab.parts.functional import (
    averaged,
    cross_entropy,
    entropy,
    evenly_spaced,
    marginal_entropy,
    probabilities,
)
from dab.parts.options import Capacity, Device, NonNegative, Positive, Range, Share
from dab.parts.shift import ShiftDetector
from dab.parts.step import counted
from dab.registry import register

__all__ = ["SequenceDAB"]

WINDOW = 128  # compared images that tell whether adapting does harm
FEWEST = 32  # of these, before anything is done about it
SURE = 1.5  # standard errors by which adapting must seem harmful
AMONG_CLASSES = 0.3  # standard deviation of the added error from class to class
CHECKED = 4  # every fourth image of a batch shows how far a step has gone, eight at least


@dataclass
class Memory(DABMemory):
    """What Sequence DAB remembers of its stream."""

    shifts: ShiftDetector
    budget: Budget
    comparison: Comparison  # with the source model
    to_compare: Annotated[float, Range(0, 1)] = 0.0  # the part of an image that is saved up
    updates: int = 0  # since it started over
    is_ordered: bool = False  # adaptation has started over because the order is relied on

    def check(self) -> None:
        """Refuse parts of a saved state that do not belong together."""
        if self.comparison.classes not in (None, len(self.tendency)):
            raise ValueError("comparison: it has another number of classes than the model")


@register("sequence_dab")
class SequenceDAB(DAB):
    """DAB for real streams: labels that persist, domains that change, a budget for updates.

    It departs from DAB as follows:

    - Predictions are corrected with the Markov prior, and the buffer is balanced by the
      corrected labels (`labels="sequence"`).
    - When the images change in kind (`dab.parts.shift.ShiftDetector`), weights, BatchNorm
      statistics and buffer return to the start: what was learned from noise is wrong for blur, and
      a buffer full of noise keeps teaching it. The same happens when the prior begins to rely on
      the order, because the labels before were guesses.
    - The source model predicts the images too. From both predictions the error that adapting adds
      is estimated, e with standard error s, over the last 128 images or the last call; see
      `dab.guard.signals.Opinion`. If e > 0, the two predictions are averaged. If e > 1.5 s,
      adapting does harm: the source model answers, and adaptation starts over. The shift
      detector may have missed a shift, or there is nothing to gain. As far as the labels rely on
      the order, s^2 includes 0.3^2 / N for the N classes that these images show.
    - It updates after every N/4 admitted images, as soon as the buffer has two classes. Until it
      has as many as DAB waits for, there is one update per class: more of them in a long run of
      one class would teach that class. Single images are compared with a running mean, so that
      it works for calls of any size.
    - The loss has a second term, - spread H(mean_i y_i): a batch from a balanced buffer should not
      be predicted as one class.
    - A step is shortened until it changes predictions little compared with how uncertain they are:
      with y before and y' after the step, mean_i KL(y_i || y'_i) <= (trust mean_i H(y_i))^2, over
      every fourth image of the batch. So a large learning rate does no harm, and a model that is
      sure is left alone.

    Args:
        model: any image classifier with normalization layers.
        capacity: M, the number of images in the buffer.
        batch_size: N, the number of images trained on in an update, whatever the size of a call.
        ensemble: weight of the adapted parameters when averaged with the source after each update.
        spread: weight of the second term of the loss.
        trust: how far a step may change predictions.
        budget: average share of calls that may update, spent first after a shift; see
            `dab.buffers.Budget`. Also the share of images that the source model predicts: the
            answers to other images are not averaged.
        storage: how the buffer keeps images; see `dab.buffers.ImageStorage`.
        device: where the buffer keeps images (default: the device of the first ones).
        **common: options that methods share; see `dab.common.Training`.
    """

    title = "Sequence DAB"
    paper = "DAB with sequence labels, a shift detector and a budget; not published"
    year = 2026
    forwards = 4.2
    passes = (4, 1)
    published = Training(lr=1.6e-2, output="markov")

    def __init__(
        self,
        model: nn.Module,
        capacity: Capacity = 256,
        *,
        batch_size: Annotated[int, Range(2, 2**31 - 1)] = 64,
        ensemble: Share = 0.99,
        spread: NonNegative = 3.0,
        trust: Positive = 0.2,
        budget: Annotated[float, Range(above=0, most=1)] = 1.0,
        storage: StorageKind = "auto",
        device: Device = None,
        **common: Unpack[Training],
    ) -> None:
        self.spread, self.trust, self.budget = spread, trust, budget
        super().__init__(
            model,
            capacity,
            batch_size=batch_size,
            ensemble=ensemble,
            admission="running",
            trigger="any",
            filling="adapt",
            labels="sequence",
            storage=storage,
            device=device,
            **common,
        )

    def begin(self, classes: int) -> Memory:
        buffering = vars(super().begin(classes))
        return Memory(
            **buffering,
            shifts=ShiftDetector(),
            budget=Budget(self.budget),
            comparison=Comparison(2 * WINDOW),
        )

    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        self.memory.budget.earn()
        if self.memory.shifts.notices(images):
            self._start_over()
            logits = self.answer(images)
        elif self.memory.updates or self.statistics.of_stream:
            logits = self._compared(images, logits)
        if not torch.isfinite(logits).all():
            return logits  # the call learns nothing
        answer = super().adapt(images, logits)
        if self.last.updated:
            self.memory.updates += 1
            self.memory.budget.pay()
        return answer

    def _compared(self, images: Tensor, logits: Tensor) -> Tensor:
        """The logits, averaged with the source model's where adapting may do harm.

        Where it surely does, it starts over, and the source model answers.
        """
        memory: Memory = self.memory
        memory.to_compare += self.budget * len(images)
        chosen = evenly_spaced(int(memory.to_compare), len(images)).to(images.device)
        memory.to_compare -= len(chosen)
        source = self.as_source(images[chosen]) if len(chosen) else logits[:0]
        if not torch.isfinite(source).all():
            source, chosen = logits[:0], chosen[:0]
        memory.comparison.add(probabilities(logits), probabilities(source), chosen.cpu())
        opinion = memory.comparison.opinion(round(WINDOW / self.budget))
        if opinion is None or opinion.samples < FEWEST or opinion.added_error <= 0:
            return logits
        # Where labels persist, the window shows few classes and says little about the others.
        of_classes = self._reliance * AMONG_CLASSES**2 / opinion.source_classes
        if opinion.added_error <= SURE * math.sqrt(opinion.uncertainty**2 + of_classes):
            return logits.index_copy(0, chosen, averaged(logits[chosen], source))
        self._start_over()
        return self.answer(images).index_copy(0, chosen, source)

    def pseudo_labels(self, logits: Tensor) -> Tensor:
        """Starts over when these labels, unlike those before, follow the order; once per domain."""
        before = self._reliance
        labels = super().pseudo_labels(logits)
        if before <= 0.5 < self._reliance and not self.memory.is_ordered:
            self._start_over()
            self.memory.is_ordered = True
        return labels

    @property
    def _reliance(self) -> float:
        """How far the labels rely on the order, from 0 to 1."""
        assert self.output is not None
        return self.output.reliance

    def is_due(self) -> bool:
        """Also requires a varied buffer: a run of one class would teach that class."""
        return super().is_due() and self._missing_classes() <= 0 and self.memory.budget.affords

    def _missing_classes(self) -> int:
        """How many more classes the buffer needs for the next update.

        Two for the first, then one more for each, up to as many as DAB waits for.
        """
        memory: Memory = self.memory
        classes = memory.trigger.classes
        enough = min(self.batch_size // 4, classes // 2)
        wanted = max(min(memory.updates + 1, enough), min(classes, 2))
        return min(wanted, self.capacity) - len(set(memory.buffer.labels))

    def progress(self) -> str:
        if self.memory is not None and (missing := self._missing_classes()) > 0:
            return f"waiting: the buffer needs {counted(missing, 'more class', 'more classes')}"
        if self.memory is not None and super().is_due():
            return f"saving: the budget allows {self.budget:g} updates per call"
        return super().progress()

    def loss(self, logits: Tensor) -> Tensor:
        return super().loss(logits) - self.spread * marginal_entropy(logits)

    def step(self, images: Tensor, logits: Tensor, loss: Tensor) -> bool:
        """The divergence grows with the square of the step, so its root says how much to keep.

        A few of the images are enough, unless BatchNorm layers use statistics of the stream.
        """
        before = [master.detach().clone() for master in self.trained.masters]
        if not super().step(images, logits, loss):
            return False
        every = 1 if self.statistics.of_stream else max(1, min(CHECKED, len(images) // 8))
        images, logits = images[::every], logits[::every].detach()
        uncertainty = entropy(logits).mean().item()
        divergence = cross_entropy(logits, self.run(images)).mean().item() - uncertainty
        allowed = (self.trust * uncertainty) ** 2
        if not divergence <= allowed:
            self.trained.ensemble(math.sqrt(allowed / divergence) if divergence > 0 else 0, before)
        return True

    def _start_over(self) -> None:
        """Back to the source model and an empty buffer, in the same stream."""
        assert self.classes is not None
        shifts, budget = self.memory.shifts, self.memory.budget
        budget.open()
        self._return_to_source()
        self.memory = replace(self.begin(self.classes), shifts=shifts, budget=budget)
        self.last.restarted = True
