"""Many streams, one model: `logits = fleet(images, streams=[...])`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Annotated, Any, TypeVar

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.fleet.member import Member, check_method, create_member
from dab.fleet.passes import Passes
from dab.fleet.shelf import Shelf, check_id
from dab.fleet.size import nbytes
from dab.fleet.stream import Stream
from dab.fleet.turns import Turn, take_turns
from dab.parts import state_file
from dab.parts.inputs import to_images
from dab.parts.locks import lock_of
from dab.parts.options import Count, Range, checked
from dab.parts.state import source_fingerprint
from dab.parts.step import counted
from dab.parts.transaction import Atomic, Savepoint, entry
from dab.registry import create

__all__ = ["Fleet"]

Self = TypeVar("Self", bound="Fleet")
Path = str | PathLike[str]


class Fleet(Atomic):
    """One model for many streams, each of which adapts on its own.

    Only the parameters of normalization layers differ from stream to stream. So all images of a
    call, whatever their streams, go through the model together, each with its own stream's
    parameters, and updates that are due are computed together too. Answers and decisions are those
    of one adapter per stream.

    A stream is created when its id is first seen, or, if the folder has a file of it, resumes from
    that. A call is atomic for all streams in it, and calls from several threads run one after the
    other. The model keeps its source weights.

    Args:
        model: the classifier. Its normalization layers may be of any class that treats the images
            of a batch one by one.
        method: the name of a method that trains nothing but normalization layers.
        folder: where streams are saved and put aside; a path, a URL of an object store, or a shelf.
        limit: most streams in memory; beyond, the least recently used ones are put aside.
        memory: most bytes that streams in memory take when a call begins, likewise. Those in the
            call stay.
        images_per_pass: most images in one forward pass, unless a stream has more of its own.
        **options: of the method, the same for every stream; see `dab.create`.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Flatten(), nn.LayerNorm(48), nn.Linear(48, 10))
    >>> fleet = Fleet(model, "tent")
    >>> fleet(torch.rand(3, 3, 4, 4), streams=["cam-1", "cam-7", "cam-1"]).shape
    torch.Size([3, 10])
    >>> fleet.stream("cam-1").totals.samples, fleet.streams
    (2, ['cam-1', 'cam-7'])
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        method: str,
        *,
        folder: Path | Shelf | None = None,
        limit: Count | None = None,
        memory: Annotated[int, Range(1)] | None = None,
        images_per_pass: Count = 256,
        **options: Any,
    ) -> None:
        if folder is None and (limit or memory):
            which = "limit" if limit else "memory"
            raise ValueError(f"{which}= needs a folder to put streams aside in: pass folder=")
        self._shelf = folder if folder is None or isinstance(folder, Shelf) else Shelf(folder)
        self.limit, self.memory, self.images_per_pass = limit, memory, images_per_pass
        template = create(method, model, **options)
        try:
            check_method(template)
        except ValueError:
            template.detach()
            raise
        self.model, self.borrowed = model, template.borrowed
        self._template = template
        self._passes = Passes(model, template.trained, template.features)
        self.borrowed.until_end(self._passes.hooks())
        source_fingerprint(template)  # known to the copies, which could not compute it
        self._shared: set[int] = set()
        nbytes(template, self._shared)
        # Replaced, never changed, so that a savepoint needs a reference only.
        self._members: Mapping[str, Member] = {}  # the least recently used first
        self._sizes: Mapping[str, int] = {}  # bytes, if there is a limit
        self._unsaved: frozenset[str] = frozenset()
        self._called: Mapping[str, Member] = {}  # those of the present call

    # Predicting and adapting.

    @entry
    def __call__(self, images: Any, streams: Sequence[str]) -> Tensor:
        """The logits of a batch, and whatever each stream learns from its images.

        Args:
            images: as for an adapter.
            streams: the id of each image's stream. Images of one stream are, in their order, one
                call of that stream.
        """
        return self._call(images, streams, Adapter._counted, keep=True)

    @entry
    def predict(self, images: Any, streams: Sequence[str]) -> Tensor:
        """The logits of a batch; nothing changes."""
        return self._call(images, streams, Adapter._predicted, keep=False)

    def _call(
        self,
        images: Any,
        streams: Sequence[str],
        work: Callable[[Adapter, Tensor], Tensor],
        keep: bool,
    ) -> Tensor:
        self._calling = os.getpid()  # from here on, the model may run; see `entry`
        images = to_images(images)
        batch = self._template._checked(images)
        rows = _rows_of(streams, len(batch))
        if self.limit is not None and len(rows) > self.limit:
            raise ValueError(
                f"a call with {counted(len(rows), 'stream')} exceeds limit={self.limit}: raise it, "
                "or split the call"
            )
        self._passes.check(batch)
        called = {stream: self._find(stream, batch) for stream in rows}
        self._make_room(called)
        self._called = called

        def everything() -> Tensor:
            parts = {stream: batch[torch.tensor(at)] for stream, at in rows.items()}
            turns = [
                Turn(
                    member.adapter, member.transcript, partial(work, member.adapter, parts[stream])
                )
                for stream, member in called.items()
            ]
            take_turns(turns, self._passes, self.images_per_pass)
            answers = torch.cat([turn.result for turn in turns if turn.result is not None])
            order = torch.tensor([at for every in rows.values() for at in every])
            logits = torch.empty_like(answers)
            logits[order.to(logits.device)] = answers
            self._keep(called)
            return logits.to(images.device)

        return self._atomically(everything, keep=keep)

    def _find(self, stream: str, batch: Tensor) -> Member:
        """A stream from memory or folder, or a new one."""
        member = self._members.get(stream) or self._from_folder(stream) or self._create()
        like = member.adapter.images_like
        if like is not None and (batch.shape[1:] != like.shape[1:] or batch.dtype != like.dtype):
            raise ValueError(
                f"stream {stream!r}: images are {batch.dtype} of shape {tuple(batch.shape[1:])}, "
                f"the stream so far is {like.dtype} of {tuple(like.shape[1:])}: call "
                f"reset({stream!r}) before a new stream"
            )
        return member

    def _create(self) -> Member:
        return create_member(self._template, self._passes)

    def _keep(self, called: Mapping[str, Member]) -> None:
        """The streams of a call are in memory now, and are those used last."""
        others = {s: member for s, member in self._members.items() if s not in called}
        self._members = {**others, **called}
        self._unsaved |= called.keys()
        if self.memory is not None:
            sizes = {stream: self._size_of(member.adapter) for stream, member in called.items()}
            self._sizes = {**self._sizes, **sizes}

    def _mark(self) -> Savepoint:
        return _Savepoint(self)

    def _recover(self) -> None:
        super()._recover()
        for member in self._called.values():  # the call has ended: also after an interrupted end
            member.adapter._savepoint = None
        self._called = {}

    # Looking at streams.

    @property
    def streams(self) -> list[str]:
        """The ids of the streams in memory, the least recently used first."""
        with lock_of(self.model):
            return list(self._members)

    @property
    def aside(self) -> list[str]:
        """The ids of the streams that are in the folder only, sorted."""
        with lock_of(self.model):
            found = [] if self._shelf is None else self._shelf.ids()
            return [stream for stream in found if stream not in self._members]

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, stream: object) -> bool:
        """Whether a stream is known: in memory or in the folder."""
        try:
            one = check_id(stream)
        except (TypeError, ValueError):
            return False
        with lock_of(self.model):
            return one in self._members or (self._shelf is not None and one in self._shelf)

    def stream(self, stream: str) -> Stream:
        """A handle on a stream: status, health, totals, saving. Looking at it is not using it."""
        if stream not in self:
            raise _unknown(stream)
        return Stream(self, stream)

    @property
    def nbytes(self) -> int:
        """Bytes that the streams in memory take, with full buffers."""
        with lock_of(self.model):
            return sum(self._size_of(member.adapter) for member in self._members.values())

    def _size_of(self, adapter: Adapter) -> int:
        return nbytes(adapter, set(self._shared))

    @entry(after_detach=True)
    def _look_at(self, stream: str) -> Adapter:
        """The adapter of a known stream, in memory or read from the folder."""
        member = self._members.get(stream) or self._from_folder(stream)
        if member is None:
            raise _unknown(stream)
        return member.adapter

    # Saving, resuming and putting aside.

    @entry
    def reset(self, stream: str | None = None) -> None:
        """Forget a stream, or all of them, files in the fleet's folder included.

        A stream that is seen again starts from the source.
        """
        if stream is not None and stream not in self:
            raise _unknown(stream)
        for one in [*self._members, *self.aside] if stream is None else [stream]:
            self._unsaved |= {one}  # if this is interrupted, it is still in memory
            if self._shelf is not None:
                self._shelf.remove(one)
            self._drop(one)

    def _drop(self, stream: str) -> None:
        self._members = _without(self._members, stream)
        self._sizes = _without(self._sizes, stream)
        self._unsaved -= {stream}

    @entry
    def put_aside(self, stream: str) -> None:
        """Move a stream from memory to the folder, from where its next call brings it back."""
        if stream not in self._members:
            raise KeyError(f"no stream {stream!r} in memory")
        self._put_aside(stream)

    def _put_aside(self, stream: str) -> None:
        self._save(stream)
        self._drop(stream)

    def _save(self, stream: str) -> None:
        """Write a stream in memory to its file, unless that is up to date."""
        shelf = self._own_folder()
        if stream in self._unsaved:
            shelf.write(stream, self._members[stream].adapter.state_dict())
            self._unsaved -= {stream}

    def _own_folder(self) -> Shelf:
        if self._shelf is None:
            raise ValueError("the fleet has no folder: create it with folder=")
        return self._shelf

    @entry(after_detach=True)
    def _save_one(self, stream: str) -> None:
        self._save(stream)

    def _make_room(self, called: Mapping[str, Member]) -> None:
        """Put streams aside until those of a call fit into memory, too."""
        for stream in [stream for stream in self._members if stream not in called]:
            number = len(self._members.keys() | called.keys())
            too_many = self.limit is not None and number > self.limit
            too_large = self.memory is not None and sum(self._sizes.values()) > self.memory
            if not (too_many or too_large):
                break
            self._put_aside(stream)

    @entry(after_detach=True)
    def save(self, folder: Path | None = None) -> None:
        """Write the streams to a folder, one file each, and each file atomically.

        To the fleet's own folder, those that have changed since they were last written; to another
        one, all, also those that are aside.
        """
        if folder is None:
            self._own_folder()
            for stream in self._members:
                self._save(stream)
            return
        shelf = Shelf(folder)
        for stream in self.aside:
            shelf.write(stream, self._own_folder().read(stream))
        for stream, member in self._members.items():
            shelf.write(stream, member.adapter.state_dict())

    @entry
    def load(self, folder: Path) -> None:
        """Resume all streams of a folder that `save` wrote to, and forget all others.

        States that do not fit are a ValueError before anything changes. In a fleet with a folder of
        its own, the streams are then aside there.
        """
        shelf = Shelf(folder)
        found = shelf.ids()
        if not found:
            raise FileNotFoundError(f"no streams in {shelf.folder}")
        members: dict[str, Member] = {}
        for stream in found:
            member = self._read(shelf, stream)
            if self._shelf is None:
                members[stream] = member
        if self._shelf is not None and self._shelf.folder != shelf.folder:
            self._unsaved = frozenset(self._members)  # if this fails, they are still in memory
            for stream in found:
                self._shelf.write(stream, shelf.read(stream))
            for stream in set(self._shelf.ids()) - set(found):
                self._shelf.remove(stream)
        self._members, self._sizes, self._unsaved = members, {}, frozenset(members)

    @entry
    def _resume(self, stream: str, path: Path) -> None:
        """Replace a stream by a saved state."""
        member = self._create()
        self._check_in(member, state_file.load_file(path))
        self._make_room({stream: member})
        self._keep({stream: member})

    def _from_folder(self, stream: str) -> Member | None:
        return self._read(self._shelf, stream) if self._shelf and stream in self._shelf else None

    def _read(self, shelf: Shelf, stream: str) -> Member:
        member = self._create()
        try:
            self._check_in(member, shelf.read(stream))
        except ValueError as error:
            raise ValueError(
                f"stream {stream!r} cannot resume from {shelf.file(stream)}: {error}; "
                f"reset({stream!r}) removes that file, and the stream starts from the source"
            ) from error
        return member

    def _check_in(self, member: Member, state: Any) -> None:
        """Load a state into a new member."""
        like = state.get("images_like") if isinstance(state, Mapping) else None
        for adapter in (known.adapter for known in self._members.values()):
            seen = adapter.images_like
            if seen is None or not isinstance(like, Tensor):
                continue
            if (seen.shape, seen.dtype) == (like.shape, like.dtype):
                # Otherwise the model would have to predict an image of that size.
                member.adapter.images_like, member.adapter.classes = seen, adapter.classes
                break
        member.adapter.load_state_dict(state)

    @entry(after_detach=True)
    def detach(self) -> nn.Module:
        """Return the model, which has its source weights, with all its flags as they were."""
        self.borrowed.end()
        return self.model

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.detach()


class _Savepoint(Savepoint):
    """A fleet and the streams of a call as they are now."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._attributes = {k: v for k, v in vars(fleet).items() if k != "_savepoint"}
        self._members = list(fleet._called.values())
        marks = [Savepoint(member.adapter) for member in self._members]
        for member, mark in zip(self._members, marks, strict=True):
            member.adapter._savepoint = mark

    def rollback(self) -> None:
        self._fleet._passes.rollback()
        for member in self._members:
            member.transcript.begin(shares=False)
            if member.adapter._savepoint is not None:  # its latest one
                member.adapter._savepoint.rollback()
        vars(self._fleet).update(self._attributes)

    def release(self) -> None:
        for member in self._members:
            if member.adapter._savepoint is not None:
                member.adapter._savepoint.release()


def _rows_of(streams: Any, images: int) -> dict[str, list[int]]:
    """The positions of each stream's images."""
    if isinstance(streams, str | bytes) or not isinstance(streams, Iterable):
        raise TypeError(
            f"streams must be a list with the id of each image's stream, got {streams!r:.60}"
        )
    ids = list(streams)
    if len(ids) != images:
        raise ValueError(
            f"got {counted(images, 'image')} and {counted(len(ids), 'stream id')}: pass one id per "
            "image"
        )
    rows: dict[str, list[int]] = {}
    for row, stream in enumerate(ids):
        rows.setdefault(check_id(stream), []).append(row)
    return rows


def _without(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {k: v for k, v in mapping.items() if k != key}


def _unknown(stream: str) -> KeyError:
    return KeyError(f"no stream {stream!r}: it has seen no images, or was forgotten")
