"""The command that repeats a run, from its identity card."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any, NamedTuple

import dab
from dab.benchmark.cell import parse_method
from dab.benchmark.results.identity import RunCard
from dab.benchmark.tasks import TASKS, TaskFactory, task_factory
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.streams import Setting
from dab.utils.text import assignments

__all__ = ["Command", "repeat"]

USUAL = {"device": "cpu", "precision": "fp32", "compile": False, "threads": 1}


class Command(NamedTuple):
    """A command, and what it needs that is not on the card."""

    method: str  # with its options
    text: str
    notes: list[str]


def repeat(card: RunCard, samples: int | None = None) -> Command:
    """The command that repeats a run: `dab run`, or `dab bench` for a piece of a stream.

    Args:
        card: of the run.
        samples: images in the whole stream, if the card is of a piece and all pieces are known.
    """
    notes: list[str] = []
    method = [card.method, *_options(card, notes)]
    shard = card.shard
    if shard is None or shard.number is None:
        words, seed = ["dab", "run", *method], "seed"
    else:
        words, seed = ["dab", "bench", "--method", " ".join(method)], "seeds"
        notes.append(f"this makes all {shard.pieces} pieces; this run is number {shard.number + 1}")
    usual = {"data": "glyphs", "setting": "correlated", seed: 0}
    values = (card.data.name, card.setting, card.seed)
    for (name, value), given in zip(usual.items(), values, strict=True):
        if given != value:
            words += [f"--{name}", str(given)]
    words += [*_stream(card, samples, notes), *_model(card, notes), *_compute(card)]
    if shard is not None:
        kind = "" if shard.kind == "interleaved" else f":{shard.kind}"
        words += ["--shard-streams", f"{shard.pieces}{kind}"]
    return Command(" ".join(method), shlex.join(words), notes)


def _options(card: RunCard, notes: list[str]) -> list[str]:
    method = card.method
    if method not in dab.methods():
        notes.append(f"{method} is not built in: add --import with the file that defines it")
    words = []
    for name, value in card.changed_options().items():
        (word,) = assignments({name: value})
        if _is_read_as(word, name, value):
            words.append(word)
        else:
            notes.append(f"option {name} was {value!r}, which cannot be written on a command line")
    return words


def _is_read_as(word: str, name: str, value: Any) -> bool:
    try:
        return parse_method(f"method {word}") == [("method", {name: value})]
    except ValueError:
        return False


def _model(card: RunCard, notes: list[str]) -> list[str]:
    model, data = card.model.details, card.data.name
    name, tag = card.model.name, model.get("tag", "")
    factory = _factory(data)
    if factory and name == factory.default_model and tag in ("", factory.default_tag):
        return []
    if tag == "file":
        notes.append(f"FILE is the one with the SHA-256 {model.get('sha256', '(unknown)')}")
        return ["--model", f"{name}@FILE"]
    if tag.startswith("random"):
        return ["--model", f"{name}@random"]
    separator = {"torchvision": ":", "timm": "."}.get(name.partition("/")[0])
    return ["--model", f"{name}{separator}{tag}" if separator and tag else name]


def _factory(data: str) -> TaskFactory | None:
    """The factory of a data set, None if it is not built in."""
    return task_factory(data) if data in TASKS else None


def _compute(card: RunCard) -> list[str]:
    words = []
    for name, value in asdict(card.compute).items():
        if value not in (None, USUAL[name]):
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def _stream(card: RunCard, whole: int | None, notes: list[str]) -> list[str]:
    data, words, domains = card.data, [], card.data.domains
    factory = _factory(data.name)
    if factory and factory.needs_root:
        words += ["--root", "DATA"]
        more = "--partial or --samples"
        if factory.options:
            more = f"--partial, --samples or the data set's {', '.join(factory.options)}"
        notes.append(f"DATA is the folder of the images; add {more} if that was given")
        if card.source_images is not None:
            notes.append(
                "add --source-images with the folder of the training images that the method was "
                f"given; their hash is {card.source_images}"
            )
    if factory and not factory.has_corruptions:
        pass  # the data set has its own domains
    elif unknown := [name for name in domains if name not in CORRUPTIONS + HELD_OUT]:
        notes.append(f"the domains {', '.join(unknown)} are not built-in corruptions")
    elif domains == HELD_OUT:
        words += ["--corruptions", "held-out"]
    elif domains != CORRUPTIONS:
        words += ["--corruptions", *domains]
    if data.severity != 5:
        words += ["--severity", str(data.severity)]
    parts = 2 * data.severity - 1 if Setting.parse(card.setting).shift == "gradual" else 1
    samples, *others = _samples(card, whole, len(domains) * parts)
    if others:
        notes.append(f"--samples may also have been {' or '.join(map(str, others))}")
    if factory and factory.needs_root:
        pass  # the folder decides
    elif factory is None or samples != factory.images:  # naming all images is another run
        words += ["--samples", str(samples)]
        if factory is None or factory.images is None:
            notes.append(f"leave out --samples if {data.name} has exactly {samples:,} images")
    if card.batch_size != 64:
        words += ["--batch-size", str(card.batch_size)]
    return words


def _samples(card: RunCard, whole: int | None, parts: int) -> list[int]:
    """How many images each part of the stream had; for a piece, all possible numbers."""
    samples, shard = card.data.samples, card.shard
    if shard is None or shard.number is None or whole is not None:
        return [(whole or samples) // parts]
    # Split either way, piece n of k has s images if the whole stream has this many.
    least = shard.pieces * (samples - 1) + shard.number + 1
    most = shard.pieces * samples + shard.number
    return list(range(-(-least // parts), most // parts + 1)) or [most // parts]
