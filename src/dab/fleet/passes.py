"""Forward and backward passes that many streams share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dab.fleet.norms import OwnValues, Slot, Values, give_own_values
from dab.parts.features import Features
from dab.parts.network import to_eval
from dab.parts.parameters import TrainedParameters
from dab.parts.validation import logits_of

__all__ = ["Answer", "Gradient", "Passes", "Run"]


@dataclass(eq=False)
class Run:
    """What a stream asks for: the logits of images, with these values of the trained parameters."""

    images: Tensor
    values: Sequence[Tensor]
    differentiable: bool  # with respect to the values, for a `Gradient`


@dataclass(eq=False)
class Answer:
    """To a `Run`."""

    logits: Tensor
    features: Tensor | None
    stacks: Sequence[Tensor]  # the values of all streams in the pass; empty without a gradient
    place: int  # of the stream's own values in the stacks

    def spend(self) -> None:
        """Let go of what a gradient needs: as after a backward pass, there is no second one."""
        self.logits, self.stacks = self.logits.detach().requires_grad_(), []


@dataclass(eq=False)
class Gradient:
    """What a stream asks for: the gradient of a loss for its trained parameters."""

    loss: Tensor
    answers: Sequence[Answer]  # that the loss may depend on
    parameters: Sequence[nn.Parameter]  # the stream's own, which the loss may also depend on


class Passes:
    """Passes over the images of many streams, each with its own values of trained parameters.

    Args:
        model: the classifier.
        trained: the parameters of the model that streams have their own values of.
        features: reads what output corrections need of every pass, if they need anything.
    """

    def __init__(
        self, model: nn.Module, trained: TrainedParameters, features: Features | None
    ) -> None:
        self.model, self.features = model, features
        self._trained = trained
        self._slot = Slot()
        self._checked: set[tuple[torch.Size, torch.dtype]] = set()

    def hooks(self) -> list[OwnValues]:
        """What the layers of the model need, until it is removed."""
        trained = zip(self._trained.names, self._trained.parameters, strict=True)
        return give_own_values(self.model, dict(trained), self._slot)

    def rollback(self) -> None:
        """After an interrupted pass."""
        self._slot.values = None
        if self.features is not None:
            self.features.rollback()

    def run(self, asked: Sequence[Run]) -> list[Answer]:
        """One forward pass. Either all or none are to be differentiable."""
        differentiable = asked[0].differentiable
        places: dict[tuple[int, ...], int] = {}  # of different values, in the order of the stacks
        different: list[Sequence[Tensor]] = []
        for run in asked:
            key = tuple(map(id, run.values))
            if key not in places:
                places[key] = len(different)
                different.append(run.values)
        of_run = [places[tuple(map(id, run.values))] for run in asked]
        stacks = [
            torch.stack([value.detach() for value in values]).to(parameter)
            for values, parameter in zip(
                zip(*different, strict=True), self._trained.parameters, strict=True
            )
        ]
        sizes = [len(run.images) for run in asked]
        images = asked[0].images if len(asked) == 1 else torch.cat([run.images for run in asked])
        with torch.set_grad_enabled(differentiable):
            for stack in stacks:
                stack.requires_grad_(differentiable)
            logits, features = self._forward(images, self._of_groups(stacks, of_run, sizes))
            logits_of_runs = torch.split(logits, sizes)
        features_of_runs: Sequence[Tensor | None] = [None] * len(asked)
        if features is not None:
            features_of_runs = torch.split(features.detach(), sizes)
        return [
            Answer(of_images, tapped, stacks if differentiable else [], place)
            for of_images, tapped, place in zip(
                logits_of_runs, features_of_runs, of_run, strict=True
            )
        ]

    def _of_groups(
        self, stacks: list[Tensor], of_run: Sequence[int], sizes: Sequence[int]
    ) -> Values:
        """One group for each run if they have as many images each, otherwise for each image."""
        images, groups = sum(sizes), len(stacks[0]) if stacks else 1
        in_order = list(of_run) == list(range(groups)) and len(set(sizes)) == 1
        if groups > 1 and not in_order:
            rows = torch.tensor(of_run, device=stacks[0].device)
            rows = rows.repeat_interleave(torch.tensor(sizes, device=rows.device))
            stacks, groups = [stack[rows] for stack in stacks], images
        return Values(images, groups, dict(zip(self._trained.names, stacks, strict=True)))

    def _forward(self, images: Tensor, values: Values) -> tuple[Tensor, Tensor | None]:
        def forward() -> Tensor:
            self._slot.values = values
            try:
                return logits_of(self.model(images), len(images), None)
            finally:
                self._slot.values = None

        to_eval(self.model)
        return (forward(), None) if self.features is None else self.features(images, forward)

    def gradients(self, asked: Sequence[Gradient]) -> list[list[Tensor | None]]:
        """One backward pass for all losses."""
        stacks = {
            id(answer.stacks): answer.stacks for gradient in asked for answer in gradient.answers
        }
        inputs = [*stacks.values(), *(gradient.parameters for gradient in asked)]
        found = iter(
            torch.autograd.grad(
                [gradient.loss for gradient in asked],
                [tensor for tensors in inputs for tensor in tensors],
                allow_unused=True,
                # Other streams of a forward pass may ask for their gradient later.
                retain_graph=any(len(tensors[0]) > 1 for tensors in stacks.values()),
            )
        )
        of_stacks = {key: [next(found) for _ in tensors] for key, tensors in stacks.items()}
        of_streams, spent = [], []
        for gradient in asked:
            parts = [[next(found) for _ in gradient.parameters]]
            for answer in gradient.answers:
                shared = of_stacks[id(answer.stacks)]
                own = [None if g is None else g[answer.place] for g in shared]
                parts.append(own)
                if any(g is not None and bool(g.any()) for g in own):
                    spent.append(answer)
            of_streams.append([_sum(summands) for summands in zip(*parts, strict=True)])
        for answer in spent:
            answer.spend()
        return of_streams

    def check(self, images: Tensor) -> None:
        """Refuse a model in which an image's values do not stay its own; once for each image size.

        Three images with different values are predicted together, and one by one.
        """
        size = images.shape[1:], images.dtype
        if size in self._checked or not self._trained.names:
            return
        generator = torch.Generator().manual_seed(0)
        several = torch.cat([images[:1], images[:1].flip(-1), images[-1:].flip(-2)])
        values = [
            [
                source * (1 + 0.1 * torch.randn(source.shape, generator=generator).to(source))
                for source in self._trained.source
            ]
            for _ in several
        ]
        runs = [Run(x[None], own, False) for x, own in zip(several, values, strict=True)]
        together = torch.cat([answer.logits for answer in self.run(runs)]).double()
        alone = torch.cat([self.run([run])[0].logits for run in runs]).double()
        if not torch.isfinite(alone).all():
            return  # nothing can be said with this image
        off = (together - alone).abs().max() / alone.abs().max().clamp_min(1e-12)
        if off > torch.finfo(self._trained.parameters[0].dtype).eps ** 0.6:
            raise ValueError(
                f"{type(self.model).__name__} does not treat the images of a batch one by one, or "
                "uses norm parameters outside of the norm layers: predicted together with others, "
                f"logits differ by {float(off):.2g} of the largest. A fleet cannot run it; use one "
                "adapter per stream"
            )
        self._checked.add(size)


def _sum(summands: Iterable[Tensor | None]) -> Tensor | None:
    total: Tensor | None = None
    for summand in summands:
        if summand is not None:
            total = summand if total is None else total + summand
    return total
