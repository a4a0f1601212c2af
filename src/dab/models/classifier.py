"""Wraps a net: normalizes its input, and selects the logits of some classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dab.parts.validation import logits_of

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """Classifies images in [0, 1]: normalizes them, runs the net, selects classes.

    The constants move between devices with the net but are not part of its state dict, so a
    checkpoint cannot change them.

    Args:
        net: returns logits, or an object with logits (Hugging Face).
        mean: of the training images, per channel.
        std: of the training images, per channel.
        classes: the indices of the logits to return, in this order; None returns all. Methods and
            softmax never see the others.

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
            raise ValueError(f"mean and std must be three numbers each, std > 0, got {mean}, {std}")
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
        raise ValueError(f"classes must have at least two elements, got {list(classes)}")
    if min(classes) < 0:
        raise ValueError(f"classes must be indices from 0, got {min(classes)}")
    if len(set(classes)) < len(classes):
        twice = next(c for i, c in enumerate(classes) if c in classes[:i])
        raise ValueError(f"classes must differ, got {twice} twice")
