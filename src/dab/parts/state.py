"""The state of an adapter as plain data, and the proof that another one may resume from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dab.parts import snapshot as memories
from dab.parts.state_file import check_leaves, checksum, same_state, weights_fingerprint
from dab.parts.step import Totals
from dab.parts.transaction import Recorded
from dab.parts.validation import check_images

if TYPE_CHECKING:
    from dab.adapter import Adapter

__all__ = ["FORMAT", "State", "check_state", "state_of"]

FORMAT = 2

# Options that may differ: what follows from them is in the state, or changes no number.
FREE_OPTIONS = ("seed", "device", "source_images")

# The model is asked about images of a state whose stream it has not seen, up to this size.
LARGEST_IMAGE = 2**24  # bytes


@dataclass
class State:
    """A state that was checked, as objects of the adapter's own."""

    classes: int | None
    images_like: Tensor | None
    weights: Mapping[str, Any]
    statistics: Mapping[str, Any]
    memory: Any
    output: Any
    generator: Tensor
    totals: Totals
    constants: dict[str, Any]


def state_of(adapter: Adapter, buffer: bool) -> dict[str, Any]:
    """Everything an adapter needs to resume, copied; without the images of its buffer if asked."""
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
        "source": _source(adapter),
        "classes": adapter.classes,
        "images_like": None if like is None else like.clone(),
        "weights": adapter.trained.state_dict(),
        "statistics": adapter.statistics.state_dict(),
        "memory": memory,
        "output": None if adapter.output is None else adapter.output.state_dict(),
        "generator": adapter.generator.get_state(),
        "totals": asdict(adapter.totals),
        **{name: getattr(adapter, name).state_dict() for name in adapter.constants},
    }
    return {**state, "checksum": checksum(state)}


def check_state(adapter: Adapter, state: Any, allow_options: bool) -> State:
    """A state as objects that an adapter can take over; a ValueError says what is wrong with it.

    Cheap checks come first, and what is declared is checked before memory is spent on it.
    """
    try:
        _check_header(adapter, state)
        check_leaves(state)
        if not allow_options:
            _check_options(_options(adapter), state["options"])
        if state["source"] != _source(adapter):
            raise ValueError(
                f"it belongs to other source weights, of a model with {state['classes']} classes: "
                "load the weights that it started from before wrapping the model"
            )
        adapter.trained.check_state_dict(state["weights"])
        if state["checksum"] != checksum({k: v for k, v in state.items() if k != "checksum"}):
            raise ValueError("its checksum does not match: it was damaged or edited")
        return _rebuilt(adapter, state, exact=not allow_options)
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
            f"it is of method {found[1]!r} in format {found[0]!r}, not of {adapter.name!r} in "
            f"format {FORMAT}"
        )
    names = {"format", "method", "options", "source", "checksum", "generator", *adapter.constants}
    names |= {field.name for field in fields(State)} - {"constants"}
    if state.keys() != names:
        raise ValueError(f"only one side has {sorted(state.keys() ^ names, key=str)}")


def _check_options(own: Mapping[str, Any], found: Any) -> None:
    different = [
        f"{name}={found.get(name)!r} (here {own.get(name)!r})"
        for name in sorted(own.keys() | found.keys())
        if not same_state(own.get(name), found.get(name))
    ]
    if different:
        raise ValueError(
            f"it was saved with {', '.join(different)}: create the adapter with the same options, "
            "or pass allow_options=True"
        )


def _options(adapter: Adapter) -> dict[str, Any]:
    """Every option that changes the numbers."""
    own = {k: v for k, v in vars(adapter).get("options", {}).items() if k not in FREE_OPTIONS}
    output = adapter.output
    return {
        **own,
        "output": output
        and {"name": getattr(output, "name", type(output).__name__)}
        | vars(output).get("options", {}),
    }


def _source(adapter: Adapter) -> str:
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


def _rebuilt(adapter: Adapter, state: Mapping[str, Any], exact: bool) -> State:
    """Fresh objects filled from a state; if exact, they must give the very same state again."""
    classes, like, memory = state["classes"], state["images_like"], None
    if classes is None:
        if not (like is None and state["memory"] is None):
            raise ValueError("it has a memory, but no classes")
    else:
        _check_fit(adapter, classes, like)
        memory = adapter.begin(classes)
        _check_buffer(adapter, memory, state["memory"], like)
        if memory is not None:
            memories.restore(memory, state["memory"])
        again = None if memory is None else memories.snapshot(memory)
        for name, saved in (state["memory"] or {}).items():
            if exact and saved is not None and not same_state(again and again[name], saved):
                raise ValueError(f"{name} is not as this method saves it")
    statistics = deepcopy(adapter.statistics)
    statistics.load_state_dict(state["statistics"])
    if exact and not same_state(statistics.state_dict(), state["statistics"]):
        raise ValueError("the statistics are not as this method saves them")
    output = deepcopy(adapter.output)
    if output is not None:
        output.load_state_dict(state["output"])
        if exact and not same_state(output.state_dict(), state["output"]):
            raise ValueError("the output correction is not as this method saves it")
    elif state["output"] is not None:
        raise ValueError("it has an output correction, and this adapter has none")
    generator = state["generator"].cpu().clone()
    torch.Generator().set_state(generator)
    constants = {name: deepcopy(getattr(adapter, name)) for name in adapter.constants}
    for name, constant in constants.items():
        constant.load_state_dict(state[name])
    totals = _totals(state["totals"])
    like = None if like is None else like.clone()
    return State(
        classes,
        like,
        state["weights"],
        state["statistics"],
        memory,
        output,
        generator,
        totals,
        constants,
    )


def _totals(found: Mapping[str, Any]) -> Totals:
    if any(type(count) is not int or count < 0 for count in found.values()):
        raise ValueError(f"its totals are not counts: {dict(found)}")
    return Totals(**found)


def _check_fit(adapter: Adapter, classes: Any, like: Any) -> None:
    """Refuse a state of another image shape or class count, by asking the model itself."""
    if type(classes) is not int or not isinstance(like, Tensor) or like.ndim != 4 or len(like):
        raise ValueError("it does not say which images and how many classes it is of")
    what = f"it is of {like.dtype} images {tuple(like.shape[1:])} in {classes} classes"
    if adapter.images_like is not None:
        if like.shape != adapter.images_like.shape or like.dtype != adapter.images_like.dtype:
            own = adapter.images_like
            raise ValueError(f"{what}, the stream so far of {own.dtype} {tuple(own.shape[1:])}")
        found = adapter.classes
    else:
        if math.prod(like.shape[1:]) * like.itemsize > LARGEST_IMAGE:
            raise ValueError(f"{what}, too large to try: adapt to one batch of them, then load")
        found = _classes_of(adapter, like, what)
    if found != classes:
        raise ValueError(f"{what}, but the model returns {found} classes")


def _classes_of(adapter: Adapter, like: Tensor, what: str) -> int:
    device = next((p.device for p in adapter.model.parameters()), like.device)
    blank = like.new_zeros((1, *like.shape[1:]), device=device)
    try:
        check_images(blank, None)
        return adapter.predict(blank).shape[1]
    except Exception as error:  # models refuse images in ways of their own
        raise ValueError(f"{what}, which does not fit: {error}") from error


def _check_buffer(adapter: Adapter, memory: Any, saved: Any, like: Tensor) -> None:
    """Refuse stored images that are not of the stream, before room is made for them."""
    for field in fields(memory) if memory is not None else ():
        part: Any = getattr(memory, field.name)
        if not (isinstance(part, Recorded) and hasattr(part, "storage")) or not saved[field.name]:
            continue
        storage = part.storage
        images = saved[field.name]["storage"]["images"]
        fits = images is None or (
            images.shape[1:] == like.shape[1:] and len(images) <= storage.capacity
        )
        if not fits:
            raise ValueError(
                f"its buffer holds {len(images)} images of {tuple(images.shape[1:])}, not up to "
                f"{storage.capacity} of {tuple(like.shape[1:])}"
            )
