"""Images of the past, to see what the model has unlearned while the stream shows something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dab.buffers import BalancedPolicy, Buffer, ImageStorage
from dab.guard.signals import Comparison, Opinion
from dab.parts.schema import Array, Integer, Maybe, Nested, take
from dab.parts.transaction import Recorded

__all__ = ["References"]

HELD = 32  # images
AT_ONCE = 16  # images that are predicted again in one look


class References(Recorded):
    """A few varied images of the stream and what the source model predicted for each.

    A model that learns one class in a long run of it and a model that collapses to it answer alike,
    and on constant images or noise even the source model predicts a single class. The difference
    shows on other images. These are balanced by the class that the source model predicts, so that
    no run of one class can crowd out the others.
    """

    capacity = HELD

    def __init__(self) -> None:
        self.looks = Comparison(HELD)
        self._buffer: Buffer | None = None
        self._source: Tensor | None = None  # its probabilities (HELD, C) for each slot
        self._next = 0  # slot to look at

    def __len__(self) -> int:
        return 0 if self._buffer is None else len(self._buffer)

    @property
    def ready(self) -> bool:
        return len(self) >= AT_ONCE

    @property
    def classes(self) -> int | None:
        """How many there are, if known."""
        return None if self._source is None else self._source.shape[1]

    @property
    def nbytes(self) -> int:
        """The bytes of images and probabilities."""
        if self._buffer is None or self._source is None:
            return 0
        return self._buffer.storage.nbytes + self._source.nbytes

    def add(self, images: Tensor, source: Tensor) -> None:
        """Offer images with the source's probabilities (k, C)."""
        p_s = source.cpu().float()
        if self._buffer is None or self._source is None:
            self._create(p_s.shape[1])
        assert self._buffer is not None
        assert self._source is not None
        placements = self._buffer.insert(images, p_s.argmax(dim=1).tolist())
        slots = [placement.slot for placement in placements if placement is not None]
        updated = self._source.clone()  # small, and a rollback needs the old one
        for row, slot in enumerate(slots):
            updated[slot] = p_s[row]
        self._source = updated

    def _create(self, classes: int) -> None:
        self._buffer = Buffer(BalancedPolicy(HELD, classes), ImageStorage(HELD))
        self._source = torch.zeros(HELD, classes)

    def read(self, device: torch.device) -> Tensor:
        """The images to look at next."""
        assert self._buffer is not None
        return self._buffer.read(self._slots(), device)

    def look(self, adapted: Tensor) -> Opinion | None:
        """What the adapted model's probabilities for these say, together with the last look."""
        assert self._source is not None
        slots = self._slots()
        self.looks.add(adapted, self._source[slots])
        self._next = (self._next + AT_ONCE) % HELD
        return self.opinion

    @property
    def opinion(self) -> Opinion | None:
        return self.looks.opinion(HELD)

    def _slots(self) -> Tensor:
        return (self._next + torch.arange(AT_ONCE)) % len(self)

    def savepoint(self) -> Any:
        tokens = self.looks.savepoint(), self._buffer and self._buffer.savepoint()
        return dict(vars(self)), tokens

    def rollback(self, token: Any) -> None:
        attributes, (looks, buffer) = token
        vars(self).update(attributes)
        self.looks.rollback(looks)
        if self._buffer is not None:
            self._buffer.rollback(buffer)

    def release(self) -> None:
        self.looks.release()
        if self._buffer is not None:
            self._buffer.release()

    def state_dict(self) -> dict[str, Any]:
        return {
            "looks": self.looks.state_dict(),
            "buffer": None if self._buffer is None else self._buffer.state_dict(),
            "source": None if self._source is None else self._source.clone(),
            "next": self._next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        looks, buffer, source, self._next = take(
            state,
            looks=Nested(),
            buffer=Maybe(Nested()),
            source=Maybe(Array((HELD, None), torch.float32, least=0)),
            next=Integer(below=HELD),
        )
        self.looks.load_state_dict(looks)
        if (buffer is None) != (source is None):
            raise ValueError("references have images without predictions, or the reverse")
        self._buffer = self._source = None
        if source is not None:
            self._create(source.shape[1])
            assert self._buffer is not None
            self._buffer.load_state_dict(buffer)
            self._source = source.clone()
