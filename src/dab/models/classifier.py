"""A net for normalized images as a classifier of plain ones, over the classes that count."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dab.parts.validation import logits_of

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """Takes plain [0, 1] images: normalizes them, runs the net, picks classes.

    The constants move between devices with the net but are left out of its state dict: they belong
    to the name that the weights were loaded by, and a checkpoint has no say in them.

    Args:
        net: puts out logits, or an object that has them (Hugging Face).
        mean, std: of the images that the net was trained on, by channel.
        classes: the logits to keep, in this order, by index; None keeps all as they are. What is
            left out is gone before a softmax or a method sees it.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(48, 10))
    >>> model = Classifier(net, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), classes=(7, 2, 4))
    >>> model(torch.rand(5, 3, 4, 4)).shape
    torch.Size([5, 3])
    """

    mean: Tensor
    std: Tensor
    classes: Tensor | None

    def __init__(
        self,
        net: nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        classes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise ValueError(f"mean and std are three numbers each, std above 0: {mean}, {std}")
        if classes is not None:
            _check(classes)
        self.net = net
        constants = {
            "mean": torch.tensor(mean, dtype=torch.float32).view(3, 1, 1),
            "std": torch.tensor(std, dtype=torch.float32).view(3, 1, 1),
            "classes": None if classes is None else torch.tensor([int(c) for c in classes]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        output = self.net((images - self.mean) / self.std)
        logits = logits_of(output, len(images), None)
        return logits if self.classes is None else logits.index_select(1, self.classes)


def _check(classes: Sequence[int]) -> None:
    if len(classes) < 2:
        raise ValueError(f"classes must be at least two, got {list(classes)}")
    if min(classes) < 0:
        raise ValueError(f"classes are indices from 0 on, got {min(classes)}")
    if len(set(classes)) < len(classes):
        twice = next(c for i, c in enumerate(classes) if c in classes[:i])
        raise ValueError(f"classes must differ, got {twice} twice")
