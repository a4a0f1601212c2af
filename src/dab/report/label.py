"""Labels that tell rows apart, as short as they can be."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import dab
from dab.benchmark.results.identity import RunCard
from dab.report.palette import title
from dab.utils.text import assignments

__all__ = ["Facts", "Label", "facts", "label"]

# What all rows of a stream have in common, or is named anyway, or differs between seeds.
SHARED = {"format", "method", "data", "model", "setting", "batch_size", "shard", "seed"}
SHARED |= {"source_error"}


@dataclass(frozen=True)
class Facts:
    """What may distinguish a row from others on the same stream."""

    method: str
    capacity: int | None
    options: Mapping[str, Any]  # those that are not the defaults, without the capacity
    follow_size: Collection[str]  # options that equal the capacity because they scale with it
    details: Mapping[str, str]  # everything else on the card


@dataclass(frozen=True)
class Label:
    """The names of a row, by where they are shown."""

    title: str  # of the method
    options: str  # all that are not the defaults, as on the command line
    short: str  # "NOTE M=16 lr=0.05": unique within the stream
    line: str  # the same for rows that differ only in the size of the buffer
    phrase: str  # "NOTE (M = 16, lr=0.05)", for sentences
    variant: int  # number among the rows of its method


def facts(card: RunCard) -> Facts:
    """The facts on a card."""
    details: dict[str, str] = {}
    for name, value in card.to_json().items():
        if name not in SHARED:
            parts = value if value and isinstance(value, dict) else {"": value}
            details |= {f"{name}.{part}".strip("."): _text(parts[part]) for part in parts}
    return Facts(
        card.method,
        card.capacity,
        {name: value for name, value in card.changed_options().items() if name != "capacity"},
        _follow_size(card),
        details,
    )


def _follow_size(card: RunCard) -> Collection[str]:
    """Updating whenever the buffer has been replaced once, say, is the same rule at every size."""
    if card.method not in dab.methods():
        return ()
    scaling = dab.method(card.method).scales_with_capacity
    return [name for name in scaling if card.options.get(name) == card.capacity]


def label(streams: Sequence[Sequence[Facts]]) -> list[list[Label]]:
    """Labels for the rows of each stream.

    Rows that have the same name on one stream are told apart by further details, and have the
    same labels on all streams.
    """
    names = [[_name(row, rows) for row in rows] for rows in streams]
    remarks = _remarks(streams)
    return [
        [_with_remark(name, remarks[_key(row)].get(id(row), "")) for name, row in pairs]
        for pairs in (zip(a, b, strict=True) for a, b in zip(names, streams, strict=True))
    ]


def _name(row: Facts, rows: Sequence[Facts]) -> Label:
    siblings = [other for other in rows if other.method == row.method]
    telling = [
        name
        for name in _distinct(name for other in siblings for name in other.options)
        if len({_text(other.options.get(name, "default")) for other in siblings}) > 1
        and not all(name in other.follow_size for other in siblings)
    ]
    printed = title(row.method)
    said = assignments({name: row.options[name] for name in telling if name in row.options})
    size = [] if row.capacity is None else [f"M={row.capacity}"]
    spaced = [] if row.capacity is None else [f"M\u00a0=\u00a0{row.capacity}"]  # on one line
    inside = ", ".join([*spaced, *said])
    rest = {name: value for name, value in row.options.items() if name not in row.follow_size}
    return Label(
        title=printed,
        options=_written(row.options),
        short=" ".join([printed, *size, *said]),
        line=f"{printed} {_written(rest)}".strip(),
        phrase=f"{printed} ({inside})" if inside else printed,
        variant=next(place for place, other in enumerate(siblings) if other is row),
    )


def _written(options: Mapping[str, Any]) -> str:
    return " ".join(assignments(options))


def _key(row: Facts) -> tuple[str, int | None, str]:
    return row.method, row.capacity, _written(row.options)


def _remarks(streams: Sequence[Sequence[Facts]]) -> dict[tuple[Any, ...], dict[int, str]]:
    """For rows of one name, what else differs between those on the same stream, by row."""
    names: dict[tuple[Any, ...], list[list[Facts]]] = {}
    for rows in streams:
        here: dict[tuple[Any, ...], list[Facts]] = {}
        for row in rows:
            here.setdefault(_key(row), []).append(row)
        for name, same in here.items():
            names.setdefault(name, []).append(same)
    return {name: _differences(by_stream) for name, by_stream in names.items()}


def _differences(by_stream: Sequence[Sequence[Facts]]) -> dict[int, str]:
    every = [row for rows in by_stream for row in rows]
    telling = [
        name
        for name in _distinct(name for row in every for name in row.details)
        if any(len({row.details.get(name) for row in rows}) > 1 for rows in by_stream)
    ]
    if not telling:
        return {}
    words = {
        name: _words(name, {row.details[name] for row in every if name in row.details})
        for name in telling
    }
    return {
        id(row): ", ".join(
            words[name].get(row.details.get(name, ""), f"no {name}") for name in telling
        )
        for row in every
    }


def _with_remark(label: Label, remark: str) -> Label:
    if not remark:
        return label
    return replace(
        label,
        options=f"{label.options} ({remark})".strip(),
        short=f"{label.short} ({remark})",
        line=f"{label.line} ({remark})",
        phrase=f"{label.phrase} ({remark})",
    )


def _words(name: str, values: Collection[str]) -> dict[str, str]:
    """How each value of a detail is written; hashes are shortened, but stay distinct.

    >>> _words("code", {"1a2b3c4d", "1a2bffff"})["1a2bffff"], _words("compute.precision", {"bf16"})
    ('code 1a2bf', {'bf16': 'bf16'})
    """
    group, _, last = name.rpartition(".")
    if last in ("device", "precision"):
        return {value: value for value in values}
    length = None
    if name in ("code", "source_images"):
        length = next(n for n in count(4) if len({value[:n] for value in values}) == len(values))
    return {value: f"{(last or group).replace('_', ' ')} {value[:length]}" for value in values}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
