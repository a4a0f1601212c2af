"""The state of an adapter as plain data, and the checks before another one resumes from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dab.parts import snapshot as memories
from dab.parts.schema import Integer, take
from dab.parts.state_file import (
    check_leaves,
    checksum,
    leaves,
    same_state,
    weights_fingerprint,
)
from dab.parts.step import Totals
from dab.parts.transaction import Recorded
from dab.parts.validation import check_images, check_names

if TYPE_CHECKING:
    from dab.adapter import Adapter

__all__ = ["FORMAT", "State", "check_state", "source_fingerprint", "state_of"]

FORMAT = 3

# Options that may differ: what follows from them is in the state, or changes no number.
FREE_OPTIONS = ("seed", "device", "source_images")

# An adapter that has seen no images runs the model on a blank image of the state, up to this size.
LARGEST_IMAGE = 2**24  # bytes


@dataclass
class State:
    """A checked state, as objects that belong to the adapter."""

    classes: int | None
    images_like: Tensor | None
    weights: Mapping[str, Any]
    statistics: Mapping[str, Any]
    memory: Any
    output: Any
    guard: Any
    generator: Tensor
    totals: Totals
    constants: dict[str, Any]


def state_of(adapter: Adapter, buffer: bool) -> dict[str, Any]:
    """Everything an adapter needs to resume, copied; without the images it keeps if asked."""
    memory = None if adapter.memory is None else memories.snapshot(adapter.memory)
    if memory is not None and not buffer and adapter.buffer is not None:
        for name in memory:
            if getattr(adapter.memory, name) is adapter.buffer:
                memory[name] = None
    like = adapter.images_like
    state = {
        "format": FORMAT,
        "method": adapter.name,
        "options": _options(adapter),
        "source": source_fingerprint(adapter),
        "classes": adapter.classes,
        "images_like": None if like is None else like.clone(),
        "weights": adapter.trained.state_dict(),
        "statistics": adapter.statistics.state_dict(),
        "memory": memory,
        "output": None if adapter.output is None else adapter.output.state_dict(),
        "guard": None if adapter.guard is None else adapter.guard.state_dict(images=buffer),
        "generator": adapter.generator.get_state(),
        "totals": asdict(adapter.totals),
        **{name: getattr(adapter, name).state_dict() for name in adapter.constants},
    }
    return {**state, "checksum": checksum(state)}


def check_state(adapter: Adapter, state: Any, allow_options: bool) -> State:
    """A state as objects that an adapter can use; a ValueError says what is wrong with it.

    Cheap checks come first, and declared sizes are checked before memory is allocated.
    """
    try:
        _check_header(adapter, state)
        check_leaves(state)
        different = _different_options(_options(adapter), state["options"])
        if different and not allow_options:
            raise ValueError(
                f"it was saved with {', '.join(different.values())}: create the adapter with the "
                "same options, or pass allow_options=True"
            )
        if state["source"] != source_fingerprint(adapter):
            raise ValueError(
                f"it belongs to other source weights, of a model with {state['classes']} classes: "
                "load the weights that it started from before wrapping the model"
            )
        adapter.trained.check_state_dict(state["weights"])
        if state["checksum"] != checksum({k: v for k, v in state.items() if k != "checksum"}):
            raise ValueError("its checksum does not match: it was damaged or edited")
        return _rebuilt(adapter, state, different)
    except ValueError as error:
        raise ValueError(
            f"incomplete or incompatible state for {adapter.name!r}: {error}"
        ) from error
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        TypeError,
        RuntimeError,
    ) as error:
        raise ValueError(
            f"incomplete or incompatible state for {adapter.name!r}: {error!r}"
        ) from error


def _check_header(adapter: Adapter, state: Any) -> None:
    if not isinstance(state, Mapping):
        raise ValueError(f"a state is a dictionary, got a {type(state).__name__}")
    found = state.get("format"), state.get("method")
    if found != (FORMAT, adapter.name) or type(found[0]) is not int:
        raise ValueError(
            f"it was saved by method {found[1]!r} (format {found[0]!r}), expected {adapter.name!r} "
            f"(format {FORMAT})"
        )
    names = {"format", "method", "options", "source", "checksum", "generator", *adapter.constants}
    names |= {field.name for field in fields(State)} - {"constants"}
    check_names(state, names)


def _different_options(own: Mapping[str, Any], found: Any) -> dict[str, str]:
    """The options that differ, and how."""
    if not isinstance(found, Mapping):
        raise ValueError("its options are not a dictionary")
    return {
        name: f"{name}={found.get(name, 'absent')!r} (here {own.get(name, 'absent')!r})"
        for name in sorted(own.keys() | found.keys())
        if name not in own or name not in found or not same_state(own[name], found[name])
    }


def _options(adapter: Adapter) -> dict[str, Any]:
    """Every option that changes the numbers."""
    own = {k: v for k, v in vars(adapter).get("options", {}).items() if k not in FREE_OPTIONS}
    output, guard = adapter.output, adapter.guard
    return {
        **own,
        "output": output
        and {"name": getattr(output, "name", type(output).__name__)}
        | vars(output).get("options", {}),
        "guard": guard and vars(guard)["options"],
    }


def source_fingerprint(adapter: Adapter) -> str:
    """A fingerprint of the model before adaptation, taken once."""
    known: str | None = vars(adapter).get("_source_fingerprint")
    if known is None:
        trained = {
            id(p): s
            for p, s in zip(adapter.trained.parameters, adapter.trained.source, strict=True)
        }
        tensors = itertools.chain(adapter.model.parameters(), adapter.model.buffers())
        known = weights_fingerprint(trained.get(id(tensor), tensor) for tensor in tensors)
        vars(adapter)["_source_fingerprint"] = known
    return known


def _rebuilt(adapter: Adapter, state: Mapping[str, Any], different: Container[str]) -> State:
    """Fresh objects filled from a state, which must give the very same state again.

    Only what follows from options that are `different` may change on the way.
    """
    classes, like, memory = state["classes"], state["images_like"], None
    if classes is None:
        if not (like is None and state["memory"] is None):
            raise ValueError("it has a memory, but no classes")
    else:
        _check_fit(adapter, classes, like)
        memory = _memory(adapter, state["memory"], classes, like, different)
    statistics = deepcopy(adapter.statistics)
    statistics.load_state_dict(state["statistics"])
    if "statistics" not in different:
        _check_same("statistics", statistics, state["statistics"])
    output = deepcopy(adapter.output)
    if output is not None:
        output.load_state_dict(state["output"])
        _check_same("output", output, state["output"])
        if classes is not None and not output.needs_features:
            _try(output, classes)
    elif state["output"] is not None:
        raise ValueError("it has an output correction, and this adapter has none")
    guard = _guard(adapter, state["guard"], memory, like, classes)
    generator = torch.Generator()
    generator.set_state(state["generator"].cpu())
    if not same_state(generator.get_state(), state["generator"]):
        raise ValueError("generator is not the state of a random generator")
    constants = {name: deepcopy(getattr(adapter, name)) for name in adapter.constants}
    for name, constant in constants.items():
        constant.load_state_dict(state[name])
        _check_same(name, constant, state[name])
    return State(
        classes,
        None if like is None else like.clone(),
        state["weights"],
        state["statistics"],
        memory,
        output,
        guard,
        generator.get_state(),
        _totals(state["totals"], classes),
        constants,
    )


def _memory(
    adapter: Adapter, saved: Any, classes: int, like: Tensor, different: Container[str]
) -> Any:
    """A memory filled from a state."""
    memory = adapter.begin(classes)
    if memory is None:
        if saved is not None:
            raise ValueError("it has a memory, and this method has none")
        return None
    parts = {field.name: getattr(memory, field.name) for field in fields(memory)}
    buffers = {
        name: part
        for name, part in parts.items()
        if isinstance(part, Recorded) and hasattr(part, "storage")
    }
    name, buffer = next(iter(buffers.items()), ("", None))
    try:
        if buffer is not None and saved[name] is not None:
            _check_images(buffer.storage.capacity, saved[name]["storage"], like)
        memories.restore(memory, saved, classes, optional=buffer)
    except ValueError as error:
        if not different or buffer is None:
            raise
        raise ValueError(
            f"{error}; a buffer that does not fit the other options can be left out: "
            "save(path, buffer=False)"
        ) from error
    again = memories.snapshot(memory)
    for field, value in saved.items():
        kept_otherwise = field == name and (value is None or "storage" in different)
        if not kept_otherwise and not same_state(again[field], value):
            raise ValueError(f"{field} is not as this method saves it")
    return memory


def _guard(
    adapter: Adapter, saved: Any, memory: Any, like: Tensor | None, classes: int | None
) -> Any:
    """A guard filled from a state."""
    guard = deepcopy(adapter.guard)
    if guard is None:
        if saved is not None:
            raise ValueError("it has a guard, and this adapter has none")
        return None
    if saved is None:
        raise ValueError("it has no guard, and this adapter has one")
    if (kept := saved["references"]["buffer"]) is not None:
        if like is None:
            raise ValueError("its guard has images, and the stream has none")
        _check_images(guard.references.capacity, kept["storage"], like)
    guard.load_state_dict(saved)
    guard.check_fit(adapter, memory, classes)
    _check_same("guard", guard, saved)
    return guard


def _check_same(name: str, part: Any, saved: Any) -> None:
    if not same_state(part.state_dict(), saved):
        raise ValueError(f"{name} is not as this method saves it")


def _try(output: Any, classes: int) -> None:
    """Refuse a correction of another number of classes, by asking a copy of it."""
    asked = deepcopy(output)
    corrected = asked.correct(torch.zeros(2, classes), None)
    before, after = (_shapes(part.state_dict()) for part in (output, asked))
    if corrected.shape != (2, classes) or before != {path: after.get(path) for path in before}:
        raise ValueError(f"its output correction is not of {classes} classes")


def _shapes(state: Any) -> dict[str, torch.Size]:
    return {path: value.shape for path, value in leaves(state) if isinstance(value, Tensor)}


def _totals(found: Any, classes: int | None) -> Totals:
    counts = take(found, **{field.name: Integer() for field in fields(Totals)})
    totals = Totals(*counts)
    per_call = max(totals.updates, totals.skipped, totals.restored, totals.restarts)
    in_order = totals.replaced <= totals.admitted <= totals.samples >= totals.calls >= per_call
    if not in_order or (classes is None) != (totals.calls == 0):
        raise ValueError(f"its totals contradict each other: {totals}")
    return totals


def _check_fit(adapter: Adapter, classes: Any, like: Any) -> None:
    """Refuse a state of another image shape or class count, by running the model."""
    if type(classes) is not int or not isinstance(like, Tensor) or like.ndim != 4 or len(like):
        raise ValueError("image shape or class count is missing")
    what = f"it is for {like.dtype} images {tuple(like.shape[1:])} in {classes} classes"
    if adapter.images_like is not None:
        if like.shape != adapter.images_like.shape or like.dtype != adapter.images_like.dtype:
            own = adapter.images_like
            raise ValueError(f"{what}, the stream so far has {own.dtype} {tuple(own.shape[1:])}")
        found = adapter.classes
    else:
        if math.prod(like.shape[1:]) * like.itemsize > LARGEST_IMAGE:
            raise ValueError(
                f"{what}, too large to check on an adapter that has seen no images: run one "
                "batch, then load"
            )
        found = _classes_of(adapter, like, what)
    if found != classes:
        raise ValueError(f"{what}, but the model returns {found} classes")


def _classes_of(adapter: Adapter, like: Tensor, what: str) -> int:
    device = next((p.device for p in adapter.model.parameters()), like.device)
    blank = like.new_zeros((1, *like.shape[1:]), device=device)
    try:
        check_images(blank, None)
        classes = adapter.predict(blank).shape[1]
    except Exception as error:  # models refuse images in ways of their own
        raise ValueError(f"{what}, which does not fit: {error}") from error
    if (dtype := adapter.image_dtype) not in (None, like.dtype):
        raise ValueError(f"{what}, but this adapter takes them as {dtype}")
    return classes


def _check_images(capacity: int, saved: Any, like: Tensor) -> None:
    """Refuse stored images that are not of the stream, before room is made for them."""
    images, dtype = saved["images"], saved["dtype"]
    if images is None:
        return
    if images.shape[1:] != like.shape[1:] or not 0 < len(images) <= capacity:
        raise ValueError(
            f"its buffer holds {len(images)} images of {tuple(images.shape[1:])}, not up to "
            f"{capacity} of {tuple(like.shape[1:])}"
        )
    if images.dtype not in (torch.uint8, like.dtype) or dtype.dtype != like.dtype:
        raise ValueError(
            f"its buffer holds {images.dtype} for {dtype.dtype} images, the stream is {like.dtype}"
        )
