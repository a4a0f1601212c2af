"""What a report says in words, for every kind of outcome."""

from __future__ import annotations

import pytest

from dab.benchmark.tasks import task_factory
from dab.report.label import Label
from dab.report.rows import Curve, ReportRow, Scores
from dab.report.words import caption, glossary, opening
from dab.streams import Setting

DOMAINS = ("fog", "snow", "frost")
SOURCE = 40.0


def row(
    name: str,
    error: float | None,
    *,
    seeds: int = 1,
    worse_domains: int | None = 1,
    deviation: float = 0.4,
    in_progress: int = 0,
) -> ReportRow:
    """A row of the source model, if that is its name, or of a method."""
    scores = None
    if error is not None:
        scores = Scores(
            seeds=tuple(range(seeds)),
            error=error,
            deviation=deviation if seeds > 1 else None,
            errors=dict.fromkeys(DOMAINS, error),
            source_error=SOURCE,
            difference=error - SOURCE,
            differences=None,
            worse=round(error, 1) > SOURCE,
            worse_domains=worse_domains,
            rank=1,
            leading=True,
            published=None,
            update_rate=100.0,
            memory=1.0,
            cost=None,
        )
    label = Label(name, "", name, name, name, 0)
    curve = Curve((), ())
    return ReportRow(
        name, name, label, name == "Source", None, (), in_progress, curve, None, None, scores
    )


def said(*rows: ReportRow) -> list[str]:
    """The sentences after the first and before the one on seeds."""
    words = opening("glyphs, correlated", 3, [row("Source", SOURCE), *rows])
    first, *rest = words.replace(". ", ".\n").splitlines()
    start = (
        "On glyphs, correlated, the source model is wrong on 40.0 % of the images (mean over 3 "
        "domains)"
    )
    assert first.startswith(start)
    changes = [first.removeprefix(start).removeprefix("; ")] if first != f"{start}." else []
    return changes + [sentence for sentence in rest if "seed" not in sentence]


def test_the_best_row_is_named_with_its_domains():
    assert said(row("DAB", 29.94, worse_domains=2), row("TENT", 58.0), row("NOTE", 39.0)) == [
        "DAB lowers it to 29.9 % and NOTE to 39.0 %; TENT raises it to 58.0 %.",
        "DAB has the lowest error, 29.9 %, 10.1 points below the source model; it is worse than "
        "the source model in 2 of 3 domains.",
    ]
    assert said(row("DAB", 39.0, worse_domains=0), row("NOTE", 40.0)) == [
        "DAB lowers it to 39.0 %; NOTE leaves it at 40.0 %.",
        "DAB has the lowest error, 39.0 %, 1.0 point below the source model; it is not worse in "
        "any domain.",
    ]
    assert said(row("DAB", 30.0, worse_domains=None)) == [
        "DAB has an error of 30.0 %, 10.0 points below the source model."
    ]


def test_rows_that_look_equal_share_the_lowest_error():
    found = said(row("TENT", 30.01), row("DAB", 30.04), row("NOTE", 35.0))
    assert (
        found[1]
        == "TENT and DAB have the lowest error, 30.0 %, 10.0 points below the source model."
    )
    many = said(*(row(f"M{n}", 30.0) for n in range(5)))
    assert many[0].startswith("5 variants have the lowest error, 30.0 %")


def test_it_says_if_nothing_beats_the_source():
    assert said(row("DAB", 41.5), row("TENT", 60.0)) == [
        "DAB raises it to 41.5 % and TENT to 60.0 %.",
        "No method has a lower error; DAB comes closest with 41.5 %, 1.5 points above the source "
        "model.",
    ]
    assert "the same as not adapting" in said(row("DAB", 40.01))[0]


def test_many_losers_are_counted():
    losers = [row(f"L{n}", 50.0 + n) for n in range(4)]
    same = [row(f"N{n}", SOURCE) for n in range(2)]
    assert said(row("DAB", 30.0), *losers[:2], *same)[1] == (
        "L1 at 51.0 % and L0 at 50.0 % are worse than the source model."
    )
    assert said(*(row(f"M{n}", 30.0 + n) for n in range(5)))[1] == (
        "No method is worse than the source model on average."
    )
    assert said(row("DAB", 30.0), *losers)[1] == (
        "4 of 5 variants are worse than the source model, L3 at 53.0 % by the most."
    )


@pytest.mark.parametrize(
    ("seeds", "sentence", "title"),
    [
        (
            (1, 1),
            "Each number is from a single seed, so the spread between seeds is unknown.",
            "Error in %, averaged over all domains, from a single seed.",
        ),
        (
            (3, 3),
            "Numbers are means over 3 seeds; the standard deviation between seeds is at most 0.4 "
            "points.",
            "Error in %, averaged over all domains: mean ± standard deviation over 3 seeds.",
        ),
        (
            (1, 5),
            "Numbers are means over 1 to 5 seeds; the standard deviation between seeds is at most "
            "0.4 points.",
            "Error in %, averaged over all domains: mean ± standard deviation over 1 to 5 seeds.",
        ),
    ],
)
def test_seeds_are_stated_as_they_are(seeds, sentence, title):
    rows = [row("Source", SOURCE, seeds=seeds[0]), row("DAB", 30.0, seeds=seeds[1])]
    assert opening("glyphs, mixed", 3, rows).endswith(sentence)
    assert caption(rows) == title


def test_a_deviation_that_rounds_to_nothing_is_not_called_zero():
    rows = [row("Source", SOURCE, seeds=2, deviation=0.01)]
    assert opening("glyphs, mixed", 3, rows).endswith("between seeds is below 0.1 points.")


def test_what_has_not_finished_is_said():
    assert opening("glyphs, mixed", 3, [row("DAB", None, in_progress=1)]) == (
        "On glyphs, mixed, no run has finished yet."
    )
    words = opening("glyphs, mixed", 3, [row("DAB", 30.0, in_progress=1)])
    assert "there is no finished run of the source model to compare it with" in words
    assert words.endswith("1 run is still in progress and not included.")


def test_the_glossary_explains_what_is_shown():
    found = {
        term.word: term.meaning
        for term in glossary(["glyphs", "x"], ["correlated"], ["dab", "mine"])
    }
    assert found["glyphs"] == task_factory("glyphs").summary
    assert found["correlated"] == Setting.parse("correlated").description
    assert "normalization layers" in found["DAB (2024)"]
    assert {"M", "error", "domain", "updates", "cost"} <= found.keys()
    assert not {"mine", "x"} & found.keys()  # nothing is known of them here


@pytest.mark.parametrize(
    "text", ["continual", "gradual", "mixed", "reset_each_shift+correlated", "mixed+correlated:0.1"]
)
def test_every_setting_describes_itself(text):
    words = Setting.parse(text).description
    assert words.endswith(".")
    assert ("in random order." in words) == ("correlated" not in text)
    assert ("0.1" in words) == ("0.1" in text)
