"""Pools the pieces of streams that were split over several adapters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import fmean

from dab.benchmark.results.result import Result
from dab.utils.fingerprint import fingerprint

__all__ = ["pooled"]


def pooled(results: Iterable[Result]) -> list[Result]:
    """Results of whole streams: the pieces of a sharded stream are pooled, others stay as they are.

    A sharded stream is left out unless all its pieces are there, both of the method and of the
    source model. Errors count wrong predictions over all pieces.
    """
    groups: dict[str, dict[int, Result]] = {}
    for result in results:
        number = result.card.shard.number if result.card.shard else None
        groups.setdefault(result.card.without_shard().run_id, {})[number or 0] = result
    wholes = [_pool(list(group.values())) for group in groups.values() if _is_complete(group)]
    errors = {found.card.source_id: found.error for found in wholes if found.card.is_source}
    return [
        replace(found, card=replace(found.card, source_error=errors[found.card.source_id]))
        if found.card.shard is not None and not found.card.is_source
        else found
        for found in wholes
        if found.card.shard is None or found.card.source_id in errors
    ]


def _is_complete(group: Mapping[int, Result]) -> bool:
    card = next(iter(group.values())).card
    return not card.is_piece or card.shard is None or len(group) == card.shard.pieces


def _pool(pieces: list[Result]) -> Result:
    first = pieces[0]
    if not first.card.is_piece:
        return first
    shown = [piece.card.shard.images or {} for piece in pieces if piece.card.shard]
    samples = [sum(images.values()) for images in shown]
    errors = {}
    for domain in first.card.data.domains:
        wrong = sum(
            round(piece.errors[domain] * images[domain] / 100)
            for piece, images in zip(pieces, shown, strict=True)
            if domain in images
        )
        errors[domain] = 100 * wrong / sum(images.get(domain, 0) for images in shown)
    seconds = sum(piece.seconds for piece in pieces)
    calls = [sum(-(-n // first.card.batch_size) for n in images.values()) for images in shown]
    updates = [piece.update_rate * n for piece, n in zip(pieces, calls, strict=True)]
    return replace(
        first,
        card=replace(
            first.card.without_shard(), data=replace(first.card.data, samples=sum(samples))
        ),
        error=fmean(errors.values()),
        errors=errors,
        windows=(),  # every piece has its own timeline
        predictions=fingerprint(*sorted(piece.predictions for piece in pieces)),
        updates=sum(piece.updates for piece in pieces),
        update_rate=sum(updates) / sum(calls),
        admitted=sum(piece.admitted for piece in pieces),
        skipped=sum(piece.skipped for piece in pieces),
        seconds=seconds,
        images_per_second=sum(samples) / seconds,
        peak_memory_mib=max(piece.peak_memory_mib for piece in pieces),
        guard=None,  # likewise
        track_error=None,  # a track may be in several pieces
    )
