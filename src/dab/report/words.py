"""What a report shows, in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dab
from dab.benchmark.tasks import TASKS, task_factory
from dab.report.palette import order, title
from dab.report.rows import ReportRow, Scores
from dab.streams import Setting

__all__ = ["Term", "caption", "glossary", "opening"]


@dataclass(frozen=True)
class Term:
    """A word on the page and what it means."""

    word: str
    meaning: str


FEW = 4  # methods whose errors fit into one sentence


def opening(stream: str, domains: int, rows: Sequence[ReportRow]) -> str:
    """The outcome on a stream: two sentences that say what happened, then the reservations."""
    done = [(row, row.scores) for row in rows if row.scores is not None]
    if not done:
        return f"On {stream}, no run has finished yet."
    source = next((scores for row, scores in done if row.is_source), None)
    adapted = sorted(
        ((row, scores) for row, scores in done if not row.is_source),
        key=lambda pair: pair[1].error,
    )
    sentences = []
    if source is not None:
        mean = f" (mean over {domains} domains)" if domains > 1 else ""
        few = 1 < len(adapted) <= FEW
        sentences.append(
            f"On {stream}, the source model is wrong on {source.error:.1f} % of the images{mean}"
            f"{f'; {_changes(adapted)}' if few else ''}."
        )
        if adapted:
            sentences.append(_best(adapted, domains))
            if not few:
                sentences += _worse(adapted)
    else:
        row, scores = adapted[0]
        sentences.append(
            f"On {stream}, {row.label.phrase} has the lowest error, {scores.error:.1f} %; there is "
            "no finished run of the source model to compare it with."
        )
    sentences.append(_seeds([scores for _, scores in done]))
    if unfinished := sum(row.in_progress for row in rows):
        runs = "1 run is" if unfinished == 1 else f"{unfinished} runs are"
        sentences.append(f"{runs} still in progress and not included.")
    return " ".join(sentences)


def _changes(adapted: Sequence[tuple[ReportRow, Scores]]) -> str:
    """What each row does to the error of the source model, lowest error first."""
    verbs: dict[str, list[str]] = {}
    for row, scores in adapted:
        below = round(-scores.difference, 1)
        verb = "lowers it" if below > 0 else "raises it" if below < 0 else "leaves it"
        preposition = "at" if below == 0 else "to"
        did = f"{verb} {preposition}" if verb not in verbs else preposition
        verbs.setdefault(verb, []).append(f"{row.label.phrase} {did} {scores.error:.1f} %")
    return "; ".join(_listed(parts) for parts in verbs.values())


def _best(adapted: Sequence[tuple[ReportRow, Scores]], domains: int) -> str:
    """Who has the lowest error; rows that are equal after rounding share it."""
    _, scores = adapted[0]
    shared = [row.label.phrase for row, s in adapted if f"{s.error:.1f}" == f"{scores.error:.1f}"]
    names, one = _listed(shared[:3]), len(shared) == 1
    if len(shared) > 3:
        names = f"{len(shared)} variants"
    below = round(-scores.difference, 1)
    if below < 0:
        return (
            f"No method has a lower error; {names} {'comes' if one else 'come'} closest with "
            f"{scores.error:.1f} %, {_points(-below)} above the source model."
        )
    has = f"{'has' if one else 'have'} the lowest error," if len(adapted) > 1 else "has an error of"
    against = f"{_points(below)} below the source model" if below else "the same as not adapting"
    sentence = f"{names} {has} {scores.error:.1f} %, {against}"
    if not one or scores.worse_domains is None or domains == 1:
        return f"{sentence}."
    if scores.worse_domains == 0:
        return f"{sentence}; it is not worse in any domain."
    return (
        f"{sentence}; it is worse than the source model in {scores.worse_domains} of {domains} "
        "domains."
    )


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them.

    >>> _listed(["a"]), _listed(["a", "b"]), _listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _worse(adapted: Sequence[tuple[ReportRow, Scores]]) -> list[str]:
    """Which rows are worse than not adapting, worst first; the best row was named already."""
    worse = [
        f"{row.label.phrase} at {scores.error:.1f} %" for row, scores in adapted if scores.worse
    ]
    if not worse:
        return ["No method is worse than the source model on average."] if len(adapted) > 1 else []
    if len(worse) == len(adapted):
        return []  # the sentence on the best row says so
    worse.reverse()
    if len(worse) > 3:
        return [
            f"{len(worse)} of {len(adapted)} variants are worse than the source model, "
            f"{worse[0]} by the most."
        ]
    return [f"{_listed(worse)} {'is' if len(worse) == 1 else 'are'} worse than the source model."]


def _points(value: float) -> str:
    return f"{value:.1f} point{'' if value == 1 else 's'}"


def _seeds(scores: Sequence[Scores]) -> str:
    deviations = [one.deviation for one in scores if one.deviation is not None]
    counted = _counted(scores)
    if not deviations:
        return f"Each number is from {counted}, so the spread between seeds is unknown."
    largest = round(max(deviations), 1)
    most = f"at most {_points(largest)}" if largest else "below 0.1 points"
    return f"Numbers are means over {counted}; the standard deviation between seeds is {most}."


def _counted(scores: Sequence[Scores]) -> str:
    """How many seeds the rows have.

    >>> _counted([])
    'no seed'
    """
    counts = sorted({len(one.seeds) for one in scores})
    if not counts:
        return "no seed"
    if counts == [1]:
        return "a single seed"
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def caption(rows: Iterable[ReportRow]) -> str:
    """What the numbers of a table are."""
    scores = [row.scores for row in rows if row.scores is not None]
    if any(one.deviation is not None for one in scores):
        return (
            f"Error in %, averaged over all domains: mean ± standard deviation over "
            f"{_counted(scores)}."
        )
    return f"Error in %, averaged over all domains, from {_counted(scores)}."


def glossary(
    data: Iterable[str], settings: Iterable[str], methods: Iterable[str]
) -> tuple[Term, ...]:
    """The words of a report: its data sets, settings and methods, and what the columns mean."""
    terms = [Term(name, task_factory(name).summary) for name in data if name in TASKS]
    terms += [Term(setting, Setting.parse(setting).description) for setting in settings]
    terms += [
        Term(
            "source model",
            "The classifier as it was trained. Every method starts from it and has to beat it.",
        ),
        Term("domain", "A part of the stream with one kind of shift, such as one corruption."),
        Term(
            "error",
            "Wrong predictions in %. Each image is predicted once, when it comes. A stream's error "
            "is the mean over its domains.",
        ),
        Term("M", "Capacity: how many images the method's buffer holds."),
        Term("updates", "Share of the calls in which the method changed the model."),
        Term("cost", "CPU time as a multiple of the source model's on the same stream."),
    ]
    for name in sorted(methods, key=order):
        if name in dab.methods():
            method = dab.method(name)
            year = "" if method.year is None else f" ({method.year})"
            summary = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
            terms.append(Term(f"{title(name)}{year}", summary))
    return tuple(terms)
