"""Calls of many streams at the same time, which share their forward and backward passes.

A method is written for one stream: it runs the model, then computes something, then asks for a
gradient. To share these passes, a stream's call is started, and abandoned where it asks for a pass.
When all streams have asked, one pass answers all, and the calls are rolled back and repeated, now
with that answer, up to the next question. What is repeated is cheap bookkeeping: no image goes
through the model twice. There are no threads, so a call can be interrupted at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.fleet.passes import Answer, Gradient, Passes, Run
from dab.parts.features import Features
from dab.parts.network import Network
from dab.parts.parameters import TrainedParameters
from dab.parts.transaction import Savepoint

__all__ = [
    "StreamFeatures",
    "StreamNetwork",
    "StreamParameters",
    "Transcript",
    "Turn",
    "take_turns",
]


class Unanswered(BaseException):
    """Abandons a call that needs a pass. No error: `except Exception` must not catch it."""

    def __init__(self, question: Run | Gradient) -> None:
        self.question = question


class Transcript:
    """What one stream has asked for in a call, and the answers.

    Outside of shared calls, every question is answered at once, by a pass for this stream alone.
    """

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self._answers: list[Any] = []
        self._position = 0
        self.shares = False  # whether to wait for passes with other streams

    def begin(self, shares: bool) -> None:
        """A new call."""
        self._answers, self._position, self.shares = [], 0, shares

    def repeat(self) -> None:
        """The same call again."""
        self._position = 0

    @property
    def is_empty(self) -> bool:
        """Whether no question has been answered."""
        return not self._answers

    def note(self, answer: Any) -> None:
        """The answer to the last question."""
        self._answers.append(answer)

    def ask(self, question: Run | Gradient) -> Any:
        if self._position == len(self._answers):
            if self.shares:
                raise Unanswered(question)
            answers: Sequence[Any]
            if isinstance(question, Run):
                answers = self._passes.run([question])
            else:
                answers = self._passes.gradients([question])
            self.note(answers[0])
        self._position += 1
        return self._answers[self._position - 1]

    @property
    def differentiable(self) -> list[Answer]:
        """The answers so far that a loss may depend on."""
        known = self._answers[: self._position]
        return [answer for answer in known if isinstance(answer, Answer) and answer.stacks]


class StreamParameters(TrainedParameters):
    """One stream's values of the trained parameters of a model, which keeps its own."""

    def __init__(self, models: TrainedParameters, transcript: Transcript) -> None:
        pairs = zip(models.names, models.parameters, strict=True)
        own = {name: nn.Parameter(parameter.detach().clone()) for name, parameter in pairs}
        super().__init__(own, models.create_optimizer)
        self.source = models.source
        self._transcript = transcript

    @property
    def present(self) -> Sequence[Tensor]:
        """The values as they are now, which a rollback does not change."""
        changed = self._token.values is not None  # since the savepoint
        return [p.detach().clone() for p in self.parameters] if changed else self.parameters

    def _differentiated(self, loss: Tensor) -> Sequence[Tensor | None]:
        answers = self._transcript.differentiable
        found: Sequence[Tensor | None] = self._transcript.ask(
            Gradient(loss, answers, self.parameters)
        )
        return found


class StreamNetwork(Network):
    """The model as one stream sees it: with the stream's values of the trained parameters."""

    def __init__(self, model: nn.Module, trained: StreamParameters, transcript: Transcript) -> None:
        super().__init__(model, trained)
        self._own = trained
        self._transcript = transcript
        self.features: Tensor | None = None  # of the last pass

    def __call__(self, images: Tensor, parameters: Mapping[str, Tensor] | None) -> Tensor:
        values = self._own.present
        if parameters is not None:
            if unknown := parameters.keys() - set(self.trained.names):
                raise ValueError(
                    f"{min(unknown)!r} is not a trained parameter, so all streams of a fleet "
                    "share its value: use one adapter per stream"
                )
            own = zip(self.trained.names, values, strict=True)
            values = [parameters.get(name, value) for name, value in own]
        # As for a single adapter, there is no gradient to values that are passed.
        differentiable = torch.is_grad_enabled() and parameters is None
        answer: Answer = self._transcript.ask(Run(images, values, differentiable))
        # Copies: a stream that keeps some of its own must not keep those of all others with it.
        self.features = None if answer.features is None else answer.features.clone()
        return answer.logits.clone()


class StreamFeatures(Features):
    """The features of one stream, out of passes that it may share with others."""

    def __init__(self, network: StreamNetwork) -> None:
        self._network = network

    def __call__(self, images: Tensor, forward: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        logits = forward()
        assert self._network.features is not None
        return logits, self._network.features

    def rollback(self, token: None = None) -> None:
        """Nothing changes."""


class Turn:
    """One stream's part of a call.

    Args:
        adapter: of the stream, with a savepoint.
        transcript: of its network and parameters.
        work: what is to be done.
    """

    def __init__(
        self, adapter: Adapter, transcript: Transcript, work: Callable[[], Tensor]
    ) -> None:
        self.adapter, self.transcript, self._work = adapter, transcript, work
        self.result: Tensor | None = None

    def attempt(self) -> Run | Gradient | None:
        """Do the work; returns the question on which it was abandoned, if any."""
        self.transcript.repeat()
        try:
            self.result = self._work()
        except Unanswered as unanswered:
            question = unanswered.question
        else:
            self.transcript.begin(shares=False)  # drops the answers
            return None
        if self.transcript.is_empty and not self.adapter.answers_after_update:
            return question  # it only began to predict, which changes nothing
        assert self.adapter._savepoint is not None
        self.adapter._savepoint.rollback()
        self.adapter._savepoint = Savepoint(self.adapter)
        return question


def take_turns(turns: Sequence[Turn], passes: Passes, images_per_pass: int) -> None:
    """Do the work of all turns, in as few passes as possible.

    A pass has at most so many images, unless a single stream asks for more. Forward passes come
    first, because streams that have just been predicted together can be differentiated together;
    but gradients go first if more than that many images would otherwise wait for theirs.
    """
    for turn in turns:
        turn.transcript.begin(shares=len(turns) > 1)
    waiting = {turn: question for turn in turns if (question := turn.attempt())}
    undifferentiated = 0  # images
    while len(waiting) > 1:
        differentiating = [t for t, asked in waiting.items() if isinstance(asked, Gradient)]
        running = _next_pass(waiting, images_per_pass)
        runs = [asked for turn in running if isinstance(asked := waiting[turn], Run)]
        images = sum(len(run.images) for run in runs if run.differentiable)
        answered: Sequence[Any]
        if differentiating and (not running or images > images_per_pass - undifferentiated):
            chosen, undifferentiated = differentiating, 0
            answered = passes.gradients([waiting[t] for t in chosen])  # type: ignore[misc]
        else:
            chosen, undifferentiated = running, undifferentiated + images
            answered = passes.run(runs)
        for turn, answer in zip(chosen, answered, strict=True):
            turn.transcript.note(answer)
            question = turn.attempt()
            if question is None:
                del waiting[turn]
            else:
                waiting[turn] = question
    for turn in waiting:  # the last one has nobody to share with
        turn.transcript.shares = False
        turn.attempt()


def _next_pass(waiting: Mapping[Turn, Run | Gradient], most: int) -> list[Turn]:
    """The first turn that asks for a forward pass, and those that can be in the same one."""
    chosen: list[Turn] = []
    first: Run | None = None
    images = 0
    for turn, asked in waiting.items():
        if not isinstance(asked, Run):
            continue
        first = first or asked
        images += len(asked.images)
        alike = (
            asked.differentiable == first.differentiable
            and asked.images.shape[1:] == first.images.shape[1:]
            and asked.images.dtype == first.images.dtype
        )
        if asked is first or (alike and images <= most):
            chosen.append(turn)
        else:
            images -= len(asked.images)
    return chosen
