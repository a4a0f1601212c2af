"""What every method shares: check the input, predict, adapt, count; reset, save, resume, let go."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from dab.buffers import Buffer
from dab.outputs import Output, create_output
from dab.parts import snapshot as states
from dab.parts.borrow import Borrowed
from dab.parts.features import Features, FeatureSource, check_source
from dab.parts.options import checked
from dab.parts.parameters import TrainedParameters
from dab.parts.step import Step, Totals
from dab.parts.validation import check_images, logits_of

__all__ = ["Adapter"]

logger = logging.getLogger("dab")

FORMAT = 1  # of state_dict

Self = TypeVar("Self", bound="Adapter")


class Adapter(nn.Module, ABC):
    """A classifier that adapts to its stream: `logits = adapter(images)`.

    A method is a subclass with `adapt`, which learns from a batch, and, if it remembers anything
    of the stream, `begin`, which makes that memory.

    Args:
        model: the classifier, adapted in place. Nothing but the `trained` parameters changes;
            `detach` gives the model back with its train/eval flags and requires_grad as they were.
        trained: the parameters to train, by name.
        optimizer: makes the optimizer for them.
        seed: of the adapter's own random generator; the global one is neither read nor moved.
        output: corrects what is answered (an `Output` or its name), not what is learned from.
        features: where to find features, for corrections that need them; see `Features`.
    """

    # What a method says about itself; tables, estimates and plots read it here.
    name: ClassVar[str]  # given by `register`
    title: ClassVar[str]  # as papers print it
    paper: ClassVar[str]
    year: ClassVar[int | None] = None  # of the paper; tables list methods in this order
    forwards: ClassVar[float] = 3.0  # cost per image in plain forward passes, measured
    learns_from_prediction: ClassVar[bool] = False  # then the logits to adapt on carry a gradient
    scales_with_capacity: ClassVar[Sequence[str]] = ()  # options that follow the buffer's size
    constants: ClassVar[Sequence[str]] = ()  # attributes to save that a reset leaves as they are

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__:
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    def __init__(
        self,
        model: nn.Module,
        trained: Mapping[str, nn.Parameter],
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer],
        seed: int = 0,
        output: Output | str | None = None,
        features: FeatureSource = None,
    ) -> None:
        super().__init__()
        check_source(model, features)
        self.output = create_output(output)
        self.features = (
            Features(model, features) if self.output and self.output.needs_features else None
        )
        self.trained = TrainedParameters(trained, optimizer)
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.borrowed = Borrowed(model, self.trained.parameters)  # nothing after this fails
        self.model = model
        self.classes: int | None = None
        self.images_like: Tensor | None = None  # an empty batch: shape and dtype of the stream
        self.memory: Any = None  # what `begin` made
        self.last, self.totals = Step(), Totals()
        self._tapped: Tensor | None = None  # features of the last answer
        self._logged_non_finite = False

    @property
    def buffer(self) -> Buffer | None:
        """The images that the method keeps, if it keeps any: to be looked at, not changed."""
        names = [] if self.memory is None else [field.name for field in fields(self.memory)]
        parts = (getattr(self.memory, name) for name in names)
        return next((part for part in parts if isinstance(part, Buffer)), None)

    @abstractmethod
    def adapt(self, images: Tensor, logits: Tensor) -> Tensor:
        """Learn from a batch and its predictions; return the logits to answer with.

        Called without gradients, with `self.memory` in place, and only with finite logits.
        `self.last` is there to be filled in.
        """

    def begin(self, classes: int) -> Any:
        """A fresh memory of a stream over this many classes; it becomes `self.memory`.

        A dataclass of tensors, numbers and objects with state_dict and load_state_dict: resetting,
        saving and resuming follow from it.
        """
        return None

    def infer(self, images: Tensor) -> Tensor:
        """The logits that predictions are made with; a method may ask another net, say a teacher.

        With a gradient where one is enabled. Must change nothing.
        """
        return self.run(images)

    def answer(self, images: Tensor) -> Tensor:
        """`infer`, keeping the features at hand that an output correction may need."""
        version = images._version
        logits = self._answer(images)
        if images._version != version:
            raise ValueError(
                "the model changes its input in place, so that it cannot be stored or trained on: "
                "let it work on a copy"
            )
        return logits

    def _answer(self, images: Tensor) -> Tensor:
        if self.features is None:
            return self.infer(images)
        logits, features = self.features(images, lambda: self.infer(images))
        self._tapped = features.detach()
        return logits

    def run(self, images: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """The model's logits for a checked batch, with other values for some parameters if given.

        With a gradient where one is enabled.
        """
        if any(module.training for module in self.model.modules()):
            self.model.eval()  # someone has called train() meanwhile
        output = (
            self.model(images)
            if parameters is None
            else torch.func.functional_call(self.model, dict(parameters), (images,))
        )
        return logits_of(output, len(images), self.classes)

    def learn(self, loss: Tensor) -> bool:
        """One optimizer step. False, with the weights untouched, if a number is not finite."""
        return self.learn_from(loss, self.trained.gradients(loss))

    def learn_from(self, loss: Tensor, gradients: Sequence[Tensor | None] | None) -> bool:
        """`learn` with gradients that have been taken already (None: not finite)."""
        self.last.loss = loss.item()
        if gradients is None:
            self._skip("the loss or its gradient")
            return False
        self.trained.step(gradients)
        self.last.updated = True
        return True

    @torch.inference_mode(False)
    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of any size, and whatever the method learns from it."""
        batch = self._checked(images)
        with torch.set_grad_enabled(self.learns_from_prediction):
            logits = self.answer(batch)
        before = self.classes, self.images_like, self.memory, self.last
        self.last = Step(samples=len(batch))
        if self.classes is None:
            self.classes = logits.shape[1]
            self.images_like = batch.new_empty((0, *batch.shape[1:]))
            self.memory = self.begin(self.classes)
        try:
            if torch.isfinite(logits).all():
                logits = self.adapt(batch, logits).detach()
                if self.output is not None:
                    logits = self.output.correct(logits, self._tapped)
            else:
                self._skip("the model's output")
        except BaseException:
            self.classes, self.images_like, self.memory, self.last = before
            raise
        self.totals.add(self.last)
        return logits.detach().to(images.device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The logits of a batch, changing nothing at all."""
        logits = self.answer(self._checked(images))
        if self.output is not None and torch.isfinite(logits).all():
            logits = deepcopy(self.output).correct(logits, self._tapped)
        return logits.to(images.device)

    @torch.inference_mode(False)
    @torch.no_grad()
    def reset(self) -> None:
        """Back to the source: weights, optimizer, memory of the stream, counters and seed."""
        self.trained.restore()
        if self.output is not None:
            self.output.reset()
        self.generator.manual_seed(self.seed)
        self.classes = self.images_like = self.memory = None
        self.last, self.totals = Step(), Totals()

    def train(self: Self, mode: bool = True) -> Self:
        """Changes nothing: adaptation runs the model in eval mode."""
        return self

    def detach(self) -> nn.Module:
        """Give the model back, adapted as it is, with all its flags as they were before."""
        self.borrowed.end()
        return self.model

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()

    @torch.inference_mode(False)
    def state_dict(  # type: ignore[override]
        self, *, buffer: bool = True, **parent: Any
    ) -> dict[str, Any]:
        """Everything needed to go on elsewhere, copied, as plain data for torch.save.

        Holds the trained parameters, not the whole model. Without `buffer`, stored images are left
        out, and adaptation goes on from an empty buffer. A module that holds the adapter asks with
        arguments of its own, and gets the whole model with this state as its extra state.
        """
        if parent:
            return super().state_dict(**parent)
        memory = None if self.memory is None else states.snapshot(self.memory)
        if memory is not None and not buffer:
            for name in memory:
                if isinstance(getattr(self.memory, name), Buffer):
                    memory[name] = None
        return {
            "format": FORMAT,
            "method": self.name,
            "classes": self.classes,
            "images_like": self.images_like,
            "weights": self.trained.state_dict(),
            "memory": memory,
            "output": None if self.output is None else self.output.state_dict(),
            "generator": self.generator.get_state(),
            "totals": asdict(self.totals),
            **{name: getattr(self, name).state_dict() for name in self.constants},
        }

    @torch.inference_mode(False)
    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # type: ignore[override]
        """Go on from a state; a ValueError, before anything changes, if it is not of this kind."""
        try:
            if (state["format"], state["method"]) != (FORMAT, self.name):
                raise ValueError(
                    f"this is a state of method {state['method']!r} in format {state['format']}, "
                    f"not of {self.name!r} in format {FORMAT}"
                )
            memory = None
            if state["classes"] is not None:
                self._check_fit(state["classes"], state["images_like"])
                memory = self.begin(state["classes"])
                if memory is not None:
                    states.restore(memory, state["memory"])
            output = deepcopy(self.output)
            if output is not None:
                output.load_state_dict(state["output"])
            torch.Generator().set_state(state["generator"].cpu())
            totals = Totals(**state["totals"])
            constants = {name: deepcopy(getattr(self, name)) for name in self.constants}
            for name, constant in constants.items():
                constant.load_state_dict(state[name])
            self.trained.load_state_dict(state["weights"])  # the last that can fail
        except (AttributeError, LookupError, TypeError, RuntimeError) as error:
            raise ValueError(f"this is no complete state of {self.name!r}: {error!r}") from error
        self.classes, self.images_like = state["classes"], state["images_like"]
        self.memory, self.output = memory, output
        for name, constant in constants.items():
            setattr(self, name, constant)
        self.last, self.totals = Step(), totals
        self.generator.set_state(state["generator"].cpu())

    def get_extra_state(self) -> dict[str, Any]:
        return self.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.load_state_dict(state)

    def _checked(self, images: Tensor) -> Tensor:
        """The batch as a method may store and train on it.

        That is finite, like the rest of the stream, on the model's device, contiguous, and no
        inference tensor, which autograd would refuse.
        """
        if self.borrowed.ended:
            raise RuntimeError("the model was given back by detach(): wrap it again to adapt it")
        check_images(images, self.images_like)
        batch = images.to(self._device(images)).contiguous()
        return batch.clone() if batch.is_inference() else batch

    def _check_fit(self, classes: int, images_like: Tensor) -> None:
        """Refuse a state of another image shape or class count, by asking the model itself."""
        blank = images_like.new_zeros((1, *images_like.shape[1:]), device=self._device(images_like))
        try:
            check_images(blank, self.images_like)
            found = self.infer(blank).shape[1]
        except Exception as error:  # models refuse images in ways of their own
            raise ValueError(
                f"the state is of {images_like.dtype} images {tuple(images_like.shape[1:])} in "
                f"{classes} classes, which does not fit: {error}"
            ) from error
        if found != classes:
            raise ValueError(f"the state is of {classes} classes, the model puts out {found}")

    def _device(self, images: Tensor) -> torch.device:
        return next((p.device for p in self.model.parameters()), images.device)

    def _skip(self, what: str) -> None:
        self.last.skipped = True
        if not self._logged_non_finite:
            self._logged_non_finite = True
            logger.warning(
                "%s: %s is not finite, so nothing is learned from this batch. Such calls are "
                "counted in totals.skipped and not logged again.",
                self.name,
                what,
            )
