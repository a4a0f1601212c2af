"""What a method's buffer held and its output correction did, for a look inside afterward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from dab.benchmark.running.evaluation import Evaluation
from dab.buffers import Buffer
from dab.streams import Batch, Stream

__all__ = ["Recorder"]

LOOKS = 150  # at the buffer's classes and ages, and at what a correction relies on
SPANS = 6  # of consecutive images, whose labels and predictions are kept
SPAN = 240  # images
SHOTS = 6  # of the images themselves
IMAGES = 64  # in a shot
NOTED = (
    *("look_at", "buffer_classes", "batch_classes", "buffer_ages"),
    *("shot_at", "buffer_images", "buffer_labels", "batch_images", "batch_labels"),
    *("shares_at", "shares", "spans"),
)
SIDE = 64  # the longer side of an image in a shot, at most


class Recorder:
    """Looks into an adapter's buffer and output correction now and then, without changing them.

    About 150 times it notes how many items each class has and how old they are. Six times it takes
    small pictures of the buffer and of the last batch. `arrays` returns it all by the names that a
    run's trace uses:

    - `look_at`: images seen at each look;
    - `buffer_classes`: (looks, classes) items of each pseudo-label in the buffer;
    - `batch_classes`: (looks, classes) images of each label in the batch just shown;
    - `buffer_ages`: (looks, 5) least, quartiles and most of the items' ages, in images that the
      stream has shown after the batch they came with; -1 for an empty buffer;
    - `shot_at`: images seen at each shot;
    - `buffer_images`, `buffer_labels`: (shots, 64, height, width, 3) up to 64 items, evenly chosen
      in the order of their pseudo-labels, and these; -1 where there is none;
    - `batch_images`, `batch_labels`: the same of the batch, in its own order.

    Nothing of these is noted for methods without a buffer. With an output correction:

    - `shares_at`: images seen at each look;
    - `shares`: (looks, names) what it relied on (`Output.shares`), in thousandths, if anything;
    - `spans`: (images, 4) for up to six spans of 240 consecutive images, each image's place in the
      stream, its label, the prediction before the correction, and the prediction.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        batches = len(stream)
        every = max(1, round(batches / LOOKS))
        self.looks = set(range(every - 1, batches, every))
        self.shots = {batches * (2 * number + 1) // (2 * SHOTS) for number in range(SHOTS)}
        count = max(1, min(SPANS, stream.samples // SPAN))
        starts = (stream.samples * (2 * number + 1) // (2 * count) for number in range(count))
        self.spans = [range(max(0, middle - SPAN // 2), middle + SPAN // 2) for middle in starts]
        self._noted: dict[str, list[Tensor]] = {}

    def note(self, batch: Batch, evaluation: Evaluation) -> None:
        """Look at the adapter after a batch, if it is time to."""
        adapter, last = evaluation.adapter, evaluation.done - 1
        if (output := adapter.output) is not None:
            if last in self.looks and (shares := output.shares()):
                thousandths = [round(1000 * share) for share in shares.values()]
                self._add(shares_at=self.stream.position(last + 1), shares=thousandths)
            self._follow(last, evaluation)
        if (buffer := adapter.buffer) is None:
            return
        if last in self.looks:
            admitted = evaluation.record(0, evaluation.done)["admitted"]
            self._look(last, batch, buffer, admitted, adapter.classes or 0)
        if last in self.shots:
            self._shoot(last, batch, buffer)

    def _follow(self, done: int, evaluation: Evaluation) -> None:
        start, end = self.stream.position(done), self.stream.position(done + 1)
        places = [at for at in range(start, end) if any(at in span for span in self.spans)]
        if not places:
            return
        assert evaluation.adapter.uncorrected is not None
        before = evaluation.adapter.uncorrected.argmax(dim=1).tolist()[start - end :]
        labels, after = self.stream.labels.tolist(), evaluation.predictions.tolist()
        for at in places:
            self._add(spans=(at, labels[at], before[at - start], after[at]))

    def _look(
        self, done: int, batch: Batch, buffer: Buffer, admitted: Tensor, classes: int
    ) -> None:
        self._add(
            look_at=self.stream.position(done + 1),
            buffer_classes=np.bincount(buffer.labels, minlength=classes),
            batch_classes=np.bincount(batch.labels.numpy(), minlength=classes),
            buffer_ages=self._ages(done, buffer, admitted.numpy()),
        )

    def _ages(self, done: int, buffer: Buffer, admitted: NDArray[Any]) -> list[int]:
        if not len(buffer):
            return [-1] * 5
        ages = np.quantile(buffer.ages, [0, 0.25, 0.5, 0.75, 1], method="inverted_cdf")
        # A sample came in with the latest call since whose beginning more than its age came in;
        # counted from the end, because the buffer may have been reset on the way.
        since = np.cumsum(admitted[::-1])
        calls = np.maximum(0, done - np.searchsorted(since, ages, side="right")).tolist()
        now = self.stream.position(done + 1)
        return [now - self.stream.position(call + 1) for call in calls]

    def _shoot(self, done: int, batch: Batch, buffer: Buffer) -> None:
        labels = torch.tensor(buffer.labels, dtype=torch.int64)
        evenly = torch.linspace(0, len(labels) - 1, min(IMAGES, len(labels))).round().long()
        chosen = labels.argsort(stable=True)[evenly]
        self._add(
            shot_at=self.stream.position(done + 1),
            buffer_images=_small(buffer.read(chosen) if len(chosen) else batch.images[:0]),
            buffer_labels=_padded(labels[chosen]),
            batch_images=_small(batch.images[:IMAGES]),
            batch_labels=_padded(batch.labels[:IMAGES]),
        )

    def _add(self, **noted: Any) -> None:
        for name, value in noted.items():
            tensor = torch.as_tensor(value)
            tensor = tensor if tensor.dtype == torch.uint8 else tensor.to(torch.int32)
            self._noted.setdefault(name, []).append(tensor)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything noted, by name."""
        return {name: tensor.numpy() for name, tensor in self.state_dict().items()}

    def state_dict(self) -> dict[str, Tensor]:
        return {name: torch.stack(tensors) for name, tensors in self._noted.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Resume; a state of something else raises a `ValueError` before anything changes."""
        for name, tensor in state.items():
            if name not in NOTED or not isinstance(tensor, Tensor) or not tensor.ndim:
                raise ValueError(f"{name!r} is not what a recorder notes")
        self._noted = {name: list(tensor) for name, tensor in state.items()}


def _small(images: Tensor) -> Tensor:
    """Up to `IMAGES` images as bytes (IMAGES, height, width, 3), no side longer than `SIDE`."""
    images = images.cpu().float()
    images = images[:, [0, 1, 2] if images.shape[1] >= 3 else [0, 0, 0]]  # bands, or gray
    shrink = min(1, SIDE / max(images.shape[2:]))
    height, width = (max(1, round(side * shrink)) for side in images.shape[2:])
    small = torch.zeros(IMAGES, height, width, 3, dtype=torch.uint8)
    if len(images):
        pixels = F.adaptive_avg_pool2d(images, (height, width)).clamp(0, 1) * 255
        small[: len(images)] = pixels.round().permute(0, 2, 3, 1)
    return small


def _padded(labels: Tensor) -> Tensor:
    return F.pad(labels, (0, IMAGES - len(labels)), value=-1)
