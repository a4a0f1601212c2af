"""What every method shares: check the input, predict, adapt, count; reset, save, resume, detach."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from inspect import Signature
from os import PathLike
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from dab.buffers import Buffer
from dab.common import DEFAULTS, Training
from dab.guard import Guard, Health, create_guard
from dab.outputs import create_output
from dab.parts import state_file
from dab.parts.batch_norm import Moments, source_statistics
from dab.parts.borrow import Borrowed
from dab.parts.features import Features, check_source
from dab.parts.inputs import InputNotices, to_images
from dab.parts.layers import BatchNorm, Trained, trained_parameters
from dab.parts.locks import lock_of
from dab.parts.network import Network
from dab.parts.normalization import Statistics
from dab.parts.optimizers import create_optimizer
from dab.parts.options import checked, signature_of
from dab.parts.parameters import TrainedParameters
from dab.parts.state import State, check_state, state_of
from dab.parts.step import Step, Totals, counted
from dab.parts.transaction import Atomic, Savepoint, entry
from dab.parts.validation import check_images, logits_of

__all__ = ["DESCRIPTIVE", "Adapter"]

logger = logging.getLogger("dab")

Self = TypeVar("Self", bound="Adapter")

# What a method says about itself without changing a number: it is not part of a run's identity.
DESCRIPTIVE = ("title", "paper", "year", "color", "forwards", "passes")


class Adapter(Atomic, nn.Module, ABC):
    """A classifier that adapts to its stream: `logits = adapter(images)`.

    A method is a subclass with `adapt`, which learns from a batch, and, if it remembers anything
    of the stream, `begin`, which creates that memory.

    A call is atomic: after an exception or KeyboardInterrupt, everything is as before the call, or,
    if its output was complete, as after it. Calls from several threads run one after the other, in
    some order.

    Args:
        model: the classifier, adapted in place. Nothing but the parameters that `trainable` chooses
            changes; `detach` returns the model with its train/eval flags and requires_grad as they
            were.
        **common: the options of `dab.common.Training`; those not given are as `published`.
    """

    # What a method says about itself; tables, estimates and plots read it here.
    name: ClassVar[str]  # given by `register`
    title: ClassVar[str]  # as papers print it
    paper: ClassVar[str]
    year: ClassVar[int | None] = None  # of the paper; tables list methods in this order
    color: ClassVar[int | None] = None  # number in the palette of reports; None: any free one
    forwards: ClassVar[float] = 3.0  # cost per image in plain forward passes, measured
    # Forward and backward passes per image that the published algorithm needs, at most.
    passes: ClassVar[tuple[int, int] | None] = None
    trains: ClassVar[Trained] = "normalization layers"
    learns_from_prediction: ClassVar[bool] = False  # then the logits to adapt on carry a gradient
    answers_after_update: ClassVar[bool] = False  # then there is no prediction before `adapt`
    learns_from_buffer: ClassVar[bool] = False  # then `adapt` takes all `steps` itself
    one_at_a_time: ClassVar[bool] = False  # then `adapt` gets the images of a batch one by one
    scales_with_capacity: ClassVar[Sequence[str]] = ()  # options that follow the buffer's size
    constants: ClassVar[Sequence[str]] = ()  # attributes to save that a reset leaves as they are
    nesterov: ClassVar[bool] = True  # whether SGD uses Nesterov momentum
    # The values of common options in its paper; those not named are as in the base class.
    published: ClassVar[Training[Any]] = DEFAULTS

    __signature__: ClassVar[Signature]  # of the constructor, with the common options by name
    options: dict[str, Any]  # the plain values this adapter was created with

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.published = {**super(cls, cls).published, **cls.published}  # type: ignore[misc]
        if "__init__" in cls.__dict__:
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        cls.__signature__ = signature_of(cls, cls.published)

    @checked
    def __init__(self, model: nn.Module, **common: Unpack[Training]) -> None:
        super().__init__()
        options: Training[Any] = {**self.published, **common}
        check_source(model, options["features"])
        self.output = create_output(options["output"])
        self.guard: Guard | None = create_guard(options["guard"])
        self.features = (
            Features(model, options["features"])
            if self.output and self.output.needs_features
            else None
        )
        optimizer = create_optimizer(
            options["optimizer"],
            lr=options["lr"],
            momentum=options["momentum"],
            weight_decay=options["weight_decay"],
            nesterov=self.nesterov,
        )
        self.trained = TrainedParameters(self.trainable(model), optimizer)
        self.steps, self.episodic = options["steps"], options["episodic"]
        if self.episodic and self.learns_from_buffer:
            raise ValueError(
                f"episodic=True would empty the buffer that {type(self).__name__} learns from "
                "before every batch: leave it out, or use a method that learns from the batch"
            )
        self.seed = options["seed"]
        self.generator = torch.Generator().manual_seed(self.seed)
        self.borrowed = Borrowed(model)
        self.borrowed.begin(self.trained.parameters)
        self.statistics = Statistics(model, options["statistics"])
        self.borrowed.until_end(self.statistics.hooks(model, self.moments))
        self.model = model
        self.network = Network(model, self.trained)
        self.notices = InputNotices()
        self.classes: int | None = None
        self.images_like: Tensor | None = None  # an empty batch: shape and dtype of the stream
        self.memory: Any = None  # what `begin` created
        self.last, self.totals = Step(), Totals()
        self._tapped: Tensor | None = None  # features of the last prediction
        self._believed: Tensor | None = None  # what the call will return, if already corrected
        self.uncorrected: Tensor | None = None  # the last logits, before the output correction
        self._calls_since_update: int | None = None

    # What a method implements, and what it may use.

    @abstractmethod
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        """Learn from a batch and its logits; return the logits that the call returns.

        Called without gradients, with `self.memory` in place, and only with finite logits. May fill
        in `self.last`. If it calls `believe`, the call returns the result of that. A method with
        `answers_after_update` gets logits with zero rows, and predicts with `self.answer`.
        """

    def trainable(self, model: nn.Module) -> Mapping[str, nn.Parameter]:
        """The parameters to train, by name: what the method `trains`, unless an option decides.

        Called by the base constructor, so such an option must be set before.
        """
        return trained_parameters(model, self.trains)

    def moments(self, name: str, layer: BatchNorm, x: Tensor) -> Moments | None:
        """Mean and variance that a BatchNorm layer normalizes its input x with; None: its own.

        Called for a kind of `statistics` that is a method's own.
        """
        return None

    def begin(self, classes: int) -> Any:
        """A fresh memory of a stream over this many classes; it becomes `self.memory`.

        A dataclass of tensors, numbers and objects with state_dict and load_state_dict: resetting,
        saving, resuming and rolling back follow from it.
        """
        return None

    def progress(self) -> str:
        """What the next update is waiting for, in words; empty if the method never waits."""
        return ""

    def infer(self, images: Tensor) -> Tensor:
        """The logits that predictions are made with; a method may use another net, say a teacher.

        With a gradient where one is enabled. Must change nothing.
        """
        return self.run(images)

    def answer(self, images: Tensor) -> Tensor:
        """`infer`, keeping the features that an output correction may need."""
        version = images._version
        if self.features is None:
            logits = self._inferred(images)
        else:
            logits, features = self.features(images, lambda: self._inferred(images))
            self._tapped = features.detach()
        if images._version != version:
            raise ValueError(
                "the model changes its input in place, so it cannot be stored or trained on: "
                "clone the input first"
            )
        return logits

    def _inferred(self, images: Tensor) -> Tensor:
        with self.statistics.answering():
            return self.infer(images)

    def run(self, images: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """The model's logits for a checked batch, with other values for some parameters if given.

        With a gradient where one is enabled, but not to such other values.
        """
        return logits_of(self.network(images, parameters), len(images), self.classes)

    def as_source(self, images: Tensor) -> Tensor:
        """The logits of the source model for a checked batch; nothing changes."""
        with source_statistics():
            return self.run(images, self.trained.source_parameters)

    def return_to_source(self, forget: bool) -> None:
        """Back to the source, in the middle of a stream and with a fresh memory.

        Unless told to `forget` them, the memory keeps its samples.
        """
        before = self.memory
        self._return_to_source()
        assert self.classes is not None
        self.memory = self.begin(self.classes)
        for field in () if self.memory is None or forget else fields(self.memory):
            if getattr(part := getattr(before, field.name), "holds_samples", False):
                setattr(self.memory, field.name, part)

    def believe(self, logits: Tensor) -> Tensor:
        """The logits after the output correction, for a method that learns from these too.

        The call then returns them. To be called at most once per call, because a correction
        remembers what it is shown.
        """
        assert self._believed is None
        assert not self.one_at_a_time
        self._believed = self._corrected(logits)
        return self._believed

    def learn(self, loss: Tensor) -> bool:
        """One optimizer step. False, with the weights untouched, if a number is not finite."""
        return self.learn_from(loss, self.trained.gradients(loss))

    def learn_from(self, loss: Tensor, gradients: Sequence[Tensor | None] | None) -> bool:
        """`learn` with gradients that have been computed already (None: not finite)."""
        self.last.loss = loss.item()
        if gradients is None:
            self._skip("the loss or its gradient is not finite")
        elif not self.trained.step(gradients):
            self._skip("the step led to weights that are not finite, and was undone")
        else:
            self.last.updated = True
            self.last.steps += 1
            return True
        return False

    # What users call.

    @property
    def buffer(self) -> Buffer | None:
        """The images that the method keeps, if it keeps any: to be looked at, not changed."""
        names = [] if self.memory is None else [field.name for field in fields(self.memory)]
        parts = (getattr(self.memory, name) for name in names)
        return next((part for part in parts if isinstance(part, Buffer)), None)

    @property
    def health(self) -> Health | None:
        """What the guard thinks of the adaptation, without labels; None if there is no guard."""
        with lock_of(self.model):
            return None if self.guard is None else self.guard.health

    @property
    def image_dtype(self) -> torch.dtype | None:
        """The dtype that images are converted to: the model's; None if it has no parameters."""
        like = next(self.model.parameters(), None)
        return like.dtype if like is not None and like.is_floating_point() else None

    @property
    def status(self) -> str:
        """What the adapter is doing, in one line."""
        calls, updates, since = self.totals.calls, self.totals.updates, self._calls_since_update
        if not self.trained.masters:
            return "not adapting by design"
        if not calls:
            return "ready: no images yet"
        if not self.last.updated and (waiting := self.progress()):
            return waiting
        last = "" if since is None else f", last {counted(since, 'call')} ago"
        if since == 0:
            last = ", last in this call"
        restored = self.totals.restored
        back = f", back to the source weights {counted(restored, 'time')}" if restored else ""
        return f"adapting: {counted(updates, 'update')} in {counted(calls, 'call')}{last}{back}"

    @entry
    def forward(self, images: Any) -> Tensor:
        """The logits of a batch of any size, and whatever the method learns from it."""
        images = to_images(images)
        batch = self._checked(images)
        return self._atomically(lambda: self._counted(batch).to(images.device))

    @entry
    def predict(self, images: Any) -> Tensor:
        """The logits of a batch; nothing changes."""
        images = to_images(images)
        batch = self._checked(images)
        return self._atomically(lambda: self._predicted(batch).to(images.device), keep=False)

    @entry
    def reset(self) -> None:
        """Back to the source: weights, optimizer, memory of the stream, counters and seed."""
        self._atomically(self._restart)

    def train(self: Self, mode: bool = True) -> Self:
        """Changes nothing: adaptation runs the model in eval mode."""
        return self

    @entry(after_detach=True)
    def detach(self) -> nn.Module:
        """Return the model, adapted as it is, with all its flags as they were before."""
        self.borrowed.end()
        return self.model

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    # Saving and resuming.

    def save(self, path: str | PathLike[str], *, buffer: bool = True) -> None:
        """Write `state_dict` to a file, atomically."""
        state_file.save_file(self.state_dict(buffer=buffer), path)

    def load(self, path: str | PathLike[str], *, allow_options: bool = False) -> None:
        """`load_state_dict` from a file that `save` wrote."""
        self.load_state_dict(state_file.load_file(path), allow_options=allow_options)

    @entry(after_detach=True)
    def state_dict(  # type: ignore[override]
        self, *, buffer: bool = True, **parent: Any
    ) -> dict[str, Any]:
        """Everything needed to resume elsewhere, copied, as plain data for torch.save.

        Contains the trained parameters, not the whole model. Without `buffer`, stored images are
        left out, and adaptation resumes from an empty buffer. A module that contains the adapter
        passes arguments of its own and gets the whole model, with this state as its extra state.
        """
        return super().state_dict(**parent) if parent else state_of(self, buffer)

    @entry
    def load_state_dict(  # type: ignore[override]
        self, state: Mapping[str, Any], *, allow_options: bool = False
    ) -> None:
        """Resume from a state.

        A state of another method, other source weights or other options, or one that is damaged,
        is a ValueError before anything changes. `allow_options` accepts other options.
        """
        found = check_state(self, state, allow_options)
        self._atomically(lambda: self._resume(found))

    def _resume(self, found: State) -> None:
        self.trained.load_state_dict(found.weights)
        self.statistics.load_state_dict(found.statistics)
        self.generator.set_state(found.generator)
        self.classes, self.images_like = found.classes, found.images_like
        self.memory, self.output, self.guard = found.memory, found.output, found.guard
        for name, constant in found.constants.items():
            setattr(self, name, constant)
        self.last, self.totals, self._calls_since_update = Step(), found.totals, None

    def get_extra_state(self) -> dict[str, Any]:
        return self.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    @entry(after_detach=True)
    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(self))

    @entry(after_detach=True)
    def __deepcopy__(self: Self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        vars(twin).update(deepcopy(vars(self), memo))
        return twin

    # How a call is made.

    def _counted(self, batch: Tensor) -> Tensor:
        answer = self._call(batch)
        self._count()
        if self.buffer is not None:
            self.notices.storage(batch, self.buffer.storage)
        return answer

    def _predicted(self, batch: Tensor) -> Tensor:
        logits = self.answer(batch)
        if not _is_finite(logits):
            logits = self._answer_of_source(batch, logits)
        return self._corrected(logits)

    def _restart(self) -> None:
        self._return_to_source()
        if self.output is not None:
            self.output.reset()
        if self.guard is not None:
            self.guard.reset()
        self.generator.manual_seed(self.seed)
        self.classes = self.images_like = self._calls_since_update = None
        self.last, self.totals = Step(), Totals()

    def _call(self, batch: Tensor) -> Tensor:
        """Predict, adapt, guard and correct; `forward` makes it atomic."""
        self.last = Step(samples=len(batch))
        if self.statistics.of_batch and (len(batch) == 1 or self.one_at_a_time):
            self.notices.once(
                "single",
                "%s: a call with a single image, whose statistics are those of one scene: "
                "BatchNorm layers need batches, so expect it to be worse than the source model, "
                'or use statistics="ema"',
                self.name,
            )
        answer = self._answered(batch)
        checked = answer if self.guard is None else self.guard.check(self, batch, answer)
        believed, self._believed = self._believed, None
        if believed is None:
            return self._corrected(checked)
        if checked is answer:
            return believed
        assert self._savepoint is not None
        self._savepoint.rollback_output()  # it has been shown what the guard replaced
        return self._corrected(checked)

    def _answered(self, batch: Tensor) -> Tensor:
        """Predict and adapt, as far as the guard allows; the logits before any correction."""
        if self.guard is not None:
            self.trained.rate = self.guard.recovery.rate
            if self.guard.paused:
                self.last.reason = "paused by the guard"
                return self.answer(batch).detach()
        if not self.one_at_a_time:
            return self._episode(batch)
        answers, features = [], []
        for image in batch.split(1):  # type: ignore[no-untyped-call]
            answers.append(self._episode(image))
            features.append(self._tapped)
        if self.features is not None:
            self._tapped = torch.cat([tapped for tapped in features if tapped is not None])
        return torch.cat(answers)

    def _episode(self, batch: Tensor) -> Tensor:
        """Predict and adapt until all steps are taken or nothing is learned."""
        if self.episodic and self.classes is not None:
            self._return_to_source()
            self.memory = self.begin(self.classes)
        for _ in range(1 if self.learns_from_buffer else self.steps):
            steps = self.last.steps
            answer = self._predict_and_adapt(batch)
            if self.last.steps <= steps:  # fewer, if the call was rolled back
                break
        return answer

    def _predict_and_adapt(self, batch: Tensor) -> Tensor:
        if self.answers_after_update and self.classes is not None:
            answer = self.adapt(batch, batch.new_empty((0, self.classes))).detach()
            if _is_finite(answer):
                return answer
            self._start_again()  # now predict first, to find what is not finite
        with torch.set_grad_enabled(self.learns_from_prediction):
            logits = self.answer(batch)
        if self.classes is None:
            self.classes = logits.shape[1]
            self.images_like = batch.new_empty((0, *batch.shape[1:]))
            self.memory = self.begin(self.classes)
        if not _is_finite(logits):
            return self._answer_of_source(batch, logits)
        tapped = self._tapped
        answer = self.adapt(batch, logits).detach()
        if not _is_finite(answer):
            self._start_again()
            self._tapped, answer = tapped, logits.detach()
            self._skip("the output after the update is not finite, so the call learns nothing")
        return answer

    def _corrected(self, logits: Tensor) -> Tensor:
        """The logits after the output correction; finite if the given ones are."""
        self.uncorrected = logits.detach()
        if self.output is None or not _is_finite(logits):
            return logits.detach()
        corrected = self.output.correct(logits, self._tapped).detach()
        if _is_finite(corrected):
            return corrected
        assert self._savepoint is not None
        self._savepoint.rollback_output()
        return logits.detach()

    def _answer_of_source(self, batch: Tensor, logits: Tensor) -> Tensor:
        """What to return in place of logits that are not finite.

        If the source model returns finite ones, earlier updates are to blame: they are discarded,
        and its logits are returned. Otherwise nothing can be learned from this batch.
        """
        if self.totals.calls or self.last.steps:
            self._return_to_source()
            if self.output is not None:
                self.output.reset()
            source = self.answer(batch)
            if _is_finite(source):
                assert self.classes is not None
                self.memory = self.begin(self.classes)
                self.last.restored = True
                self._skip("the adapted model's output is not finite: back to the source weights")
                return source.detach()
            self._start_again()
        self._skip("the model's output is not finite")
        return logits.detach()

    def _return_to_source(self) -> None:
        self.trained.restore()
        self.statistics.reset()
        self.memory = None

    def _start_again(self) -> None:
        """Return to the state at the start of the call."""
        assert self._savepoint is not None
        samples = self.last.samples
        self._savepoint.rollback()
        self._savepoint = Savepoint(self)
        self.last = Step(samples=samples)

    def _count(self) -> None:
        last = self.last
        self.totals = self.totals.plus(last)
        if last.updated:
            self._calls_since_update = 0
            last.reason = "updated" if last.loss is None else f"updated: loss {last.loss:.4g}"
        else:
            if self._calls_since_update is not None:
                self._calls_since_update += 1
            last.reason = last.reason or self.progress() or self.status

    def _checked(self, images: Any) -> Tensor:
        """The batch as a method may store and train on it.

        That is finite, like the rest of the stream, on the model's device, in its precision,
        contiguous, and not an inference tensor, which autograd would refuse.
        """
        if isinstance(images, Tensor) and images.is_floating_point() and self.image_dtype:
            images = images.to(self.image_dtype)
        lowest, highest = check_images(images, self.images_like)
        self.notices.range(lowest, highest)
        batch: Tensor = images.to(next(self.model.parameters(), images).device).contiguous()
        return batch.clone() if batch.is_inference() else batch

    def _skip(self, why: str) -> None:
        self.last.skipped = True
        self.last.reason = f"skipped: {why}"
        self.notices.once(
            "skip",
            "%s: %s. Such calls are counted in totals.skipped and not logged again.",
            self.name,
            why,
        )


def _is_finite(logits: Tensor) -> bool:
    return bool(torch.isfinite(logits).all())
