"""The pieces of a stream that was dealt out to several adapters, taken together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from dab.benchmark.result import Result, key

__all__ = ["pooled"]

# What runs on the same stream may differ in.
METHOD = ("method", "code", "options", "source_images")


def pooled(results: Iterable[Result]) -> list[Result]:
    """Results for whole streams: pieces are pooled, where all are there; others stay as they are.

    Errors are wrong predictions by images over all pieces, as if one adapter had made them.
    """
    groups: dict[str, dict[int, Result]] = {}
    for result in results:
        shard = result.card.get("shard", {"number": 0})
        groups.setdefault(key(_whole(result.card)), {})[shard["number"]] = result
    wholes = [
        _pool(list(group.values()))
        for group in groups.values()
        if len(group) == next(iter(group.values())).card.get("shard", {"pieces": 1})["pieces"]
    ]
    errors = {_stream(whole): whole.error for whole in wholes if whole.card["source_error"] is None}
    return [
        replace(whole, card={**whole.card, "source_error": errors[_stream(whole)]})
        if "shard" in whole.card and _stream(whole) in errors and whole.card["source_error"]
        else whole
        for whole in wholes
    ]


def _whole(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the cards of all pieces have in common."""
    if "shard" not in card:
        return card
    shard = {name: card["shard"][name] for name in ("pieces", "kind")}
    data = {**card["data"], "samples": None}
    return {**card, "shard": shard, "data": data, "source_error": None}


def _stream(result: Result) -> str:
    whole = _whole(result.card)
    return key({name: value for name, value in whole.items() if name not in METHOD})


def _pool(pieces: list[Result]) -> Result:
    if "shard" not in pieces[0].card:
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
    shard = first.card["shard"]
    calls = [sum(-(-n // first.card["batch_size"]) for n in images.values()) for images in shown]
    updates = [piece.update_rate * n for piece, n in zip(pieces, calls, strict=True)]
    return replace(
        first,
        card={
            **first.card,
            "shard": {name: shard[name] for name in ("pieces", "kind")},
            "setting": f"{first.card['setting']}, {shard['pieces']} {shard['kind']} pieces",
            "data": {**first.card["data"], "samples": sum(samples)},
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
