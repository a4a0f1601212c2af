"""The pixels of a buffer: one preallocated tensor, written by copies, read by one gather."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from dab.parts.transaction import Recorded

__all__ = ["ImageStorage", "StorageKind"]

StorageKind = Literal["auto", "uint8", "native"]


def _levels(like: Tensor) -> Tensor:
    # A tensor on the device, not a number: dividing by a number may multiply by its reciprocal,
    # which is off by one unit in the last place for some of the 256 levels.
    return torch.tensor(255, device=like.device, dtype=like.dtype)


def _to_uint8(images: Tensor) -> Tensor:
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    return (wide * _levels(wide)).round_().to(torch.uint8)


def _from_uint8(stored: Tensor, dtype: torch.dtype) -> Tensor:
    wide = stored.to(torch.promote_types(dtype, torch.float32))
    return wide.div_(_levels(wide)).to(dtype)


class ImageStorage(Recorded):
    """Room for `capacity` images of one shape, filled from slot 0 up.

    Args:
        capacity: how many images it holds.
        kind: "uint8" keeps 8 bits per value (pixels must be in [0, 1] and are rounded to k/255);
            "native" keeps the input's dtype; "auto" keeps 8 bits as long as every pixel is exactly
            k/255, so that nothing is lost, and switches to native storage when one is not.
        device: where the images are kept; by default the device of the first images.

    >>> storage = ImageStorage(capacity=2)
    >>> storage.write([0], storage.encode(torch.full((1, 3, 4, 4), 51 / 255)))
    >>> storage.dtype, storage.read(torch.tensor([0])).unique()
    (torch.uint8, tensor([0.2000]))
    """

    def __init__(
        self,
        capacity: int,
        kind: StorageKind = "auto",
        device: torch.device | str | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        if kind not in get_args(StorageKind):
            raise ValueError(f"storage must be one of {get_args(StorageKind)}, got {kind!r}")
        self.capacity = capacity
        self.kind = kind
        self.device = None if device is None else torch.device(device)
        self._occupied = 0
        self._stored: Tensor | None = None
        self._image_dtype = torch.float32
        self._overwritten: list[tuple[Tensor, Tensor, Tensor]] | None = None  # if recording

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that images are kept in; None before the first one."""
        return None if self._stored is None else self._stored.dtype

    @property
    def nbytes(self) -> int:
        """The bytes that a full storage takes; 0 before the first image."""
        return 0 if self._stored is None else self._stored.nbytes

    def encode(self, images: Tensor) -> Tensor:
        """The images as this storage keeps them, or a ValueError if it cannot hold them.

        All errors of storing are raised here, before any slot is chosen. Stored images do not
        change, except that 8-bit storage may switch to native, which loses nothing.
        """
        encoded = self._encoded(images)
        if self._stored is None:
            self._image_dtype = images.dtype
            self._allocate(encoded)
        elif self._stored.dtype == torch.uint8 != encoded.dtype:
            eight_bit = self._stored[: self._occupied]
            self._allocate(encoded)
            self._stored[: self._occupied] = _from_uint8(eight_bit, self._image_dtype)
        return encoded

    def _encoded(self, images: Tensor) -> Tensor:
        if self.kind == "native" or self.dtype not in (None, torch.uint8):
            return images
        if self.kind == "uint8":
            lowest, highest = torch.aminmax(images)
            if lowest < 0 or highest > 1:
                raise ValueError(
                    f"storage='uint8' needs pixels in [0, 1], got [{lowest:.4g}, {highest:.4g}]: "
                    "normalize inside the model, or use storage='native'"
                )
            return _to_uint8(images)
        encoded = _to_uint8(images)
        return encoded if torch.equal(_from_uint8(encoded, images.dtype), images) else images

    def _allocate(self, like: Tensor) -> None:
        # Untouched pages of an empty tensor cost nothing on CPU: memory grows as slots are written.
        self._stored = torch.empty(
            (self.capacity, *like.shape[1:]), dtype=like.dtype, device=self.device or like.device
        )

    def write(self, slots: Sequence[int], encoded: Tensor) -> None:
        """Copy images that `encode` returned into slots, which must be distinct."""
        assert self._stored is not None, "encode before write"
        self._record(slots)
        self._stored.index_copy_(
            0, torch.tensor(slots, device=self._stored.device), encoded.to(self._stored)
        )
        self._occupied = max(self._occupied, max(slots) + 1)

    def _record(self, slots: Sequence[int]) -> None:
        """Keep the images that are about to be overwritten, for a rollback."""
        if self._overwritten is not None and self._stored is not None:
            occupied = [slot for slot in slots if slot < self._occupied]
            where = torch.tensor(occupied, dtype=torch.int64, device=self._stored.device)
            rows = self._stored.index_select(0, where)
            self._overwritten.append((self._stored, where, rows))

    def savepoint(self) -> Any:
        self._overwritten = []
        return self._stored, self._occupied, self._image_dtype, self._overwritten

    def rollback(self, token: Any) -> None:
        self._stored, self._occupied, self._image_dtype, overwritten = token
        for stored, where, rows in reversed(overwritten):
            stored.index_copy_(0, where, rows)

    def release(self) -> None:
        self._overwritten = None

    def read(self, slots: Tensor, device: torch.device | None = None) -> Tensor:
        """The images in these slots as they were inserted, in one gather; on `device` if given."""
        if self._stored is None:
            raise ValueError("nothing has been stored yet")
        images = self._stored.index_select(0, slots.to(self._stored.device))
        # 8-bit images are moved to the model's device before they are converted to floats.
        images = images if device is None else images.to(device)
        return _from_uint8(images, self._image_dtype) if images.dtype == torch.uint8 else images

    def state_dict(self) -> dict[str, Any]:
        """The stored images, as they are kept."""
        if self._stored is None:
            return {"images": None, "dtype": None}
        # The dtype is saved as an empty tensor, which torch.load(weights_only=True) always accepts.
        return {
            "images": self._stored[: self._occupied].clone(),
            "dtype": torch.empty(0, dtype=self._image_dtype),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the images of a state into slots 0, 1, ..., in the kind of this storage."""
        images = state["images"]
        if images is None:
            self._stored, self._occupied = None, 0
            return
        if len(images) > self.capacity:
            raise ValueError(
                f"the state holds {len(images)} images, this buffer at most {self.capacity}"
            )
        self._image_dtype = state["dtype"].dtype
        if self.kind == "native" and images.dtype == torch.uint8:
            images = _from_uint8(images, self._image_dtype)
        elif self.kind == "uint8" and images.dtype != torch.uint8:
            images = self._encoded(images)
        self._allocate(images)
        self.write(range(len(images)), images)
