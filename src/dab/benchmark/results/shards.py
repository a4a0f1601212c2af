"""The pieces of a stream that was dealt out to several adapters, taken together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from dab.benchmark.results.result import Result, key

__all__ = ["pooled", "whole"]

# What runs on the same stream may differ in.
METHOD = ("method", "code", "options", "source_images")


def pooled(results: Iterable[Result]) -> list[Result]:
    """Results for whole streams: pieces are pooled, others stay as they are.

    Pieces of which not all are there, or not all of the source model on the same stream, are left
    out. Errors are wrong predictions by images over all pieces, as if one adapter had made them.
    """
    groups: dict[str, dict[int, Result]] = {}
    for result in results:
        number = result.card.get("shard", {}).get("number", 0)
        groups.setdefault(key(whole(result.card)), {})[number] = result
    wholes = [_pool(list(group.values())) for group in groups.values() if _is_complete(group)]
    errors = {_stream(found): found.error for found in wholes if found.card["source_error"] is None}
    return [
        replace(found, card={**found.card, "source_error": errors[_stream(found)]})
        if "shard" in found.card and found.card["source_error"] is not None
        else found
        for found in wholes
        if "shard" not in found.card or _stream(found) in errors
    ]


def whole(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the cards of all pieces of a stream have in common; any other card as it is.

    >>> card = {"setting": "mixed", "data": {"samples": 9}, "source_error": 50.0}
    >>> whole(card) == card
    True
    >>> shard = {"number": 2, "pieces": 3, "kind": "consecutive", "images": {"fog": 9}}
    >>> whole({**card, "shard": shard})["setting"]
    'mixed, 3 consecutive pieces'
    """
    if "shard" not in card:
        return card
    shard = {name: card["shard"][name] for name in ("pieces", "kind")}
    setting = card["setting"]
    if _is_piece(card):
        setting = f"{setting}, {shard['pieces']} {shard['kind']} pieces"
    data = {**card["data"], "samples": None}
    return {**card, "shard": shard, "setting": setting, "data": data, "source_error": None}


def _is_piece(card: Mapping[str, Any]) -> bool:
    return "number" in card.get("shard", {})


def _is_complete(group: Mapping[int, Result]) -> bool:
    card = next(iter(group.values())).card
    return not _is_piece(card) or len(group) == card["shard"]["pieces"]


def _stream(result: Result) -> str:
    common = whole(result.card)
    return key({name: value for name, value in common.items() if name not in METHOD})


def _pool(pieces: list[Result]) -> Result:
    if not _is_piece(pieces[0].card):
        return pieces[0]
    first = pieces[0]
    shown = [piece.card["shard"]["images"] for piece in pieces]
    samples = [sum(images.values()) for images in shown]
    errors = {}
    for domain in first.card["data"]["domains"]:
        wrong = sum(
            round(piece.errors[domain] * images[domain] / 100)
            for piece, images in zip(pieces, shown, strict=True)
            if domain in images
        )
        errors[domain] = 100 * wrong / sum(images.get(domain, 0) for images in shown)
    seconds = sum(piece.seconds for piece in pieces)
    calls = [sum(-(-n // first.card["batch_size"]) for n in images.values()) for images in shown]
    updates = [piece.update_rate * n for piece, n in zip(pieces, calls, strict=True)]
    return replace(
        first,
        card={
            **whole(first.card),
            "data": {**first.card["data"], "samples": sum(samples)},
            "source_error": first.card["source_error"],
        },
        error=fmean(errors.values()),
        errors=errors,
        windows=[],  # each piece has a time of its own
        predictions=key({"pieces": sorted(piece.predictions for piece in pieces)}),
        updates=sum(piece.updates for piece in pieces),
        update_rate=sum(updates) / sum(calls),
        admitted=sum(piece.admitted for piece in pieces),
        skipped=sum(piece.skipped for piece in pieces),
        seconds=seconds,
        images_per_second=sum(samples) / seconds,
        peak_memory_mib=max(piece.peak_memory_mib for piece in pieces),
    )
