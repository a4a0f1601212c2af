"""docs/results.md and README.md show the stored results, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

import pytest

from dab.benchmark import suites
from dab.benchmark.results.summary import Row

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    import results

    return results


def row(
    method: str, error: float, *, setting: str = "correlated", **changes: Any
) -> dict[str, Any]:
    return {
        "data": "glyphs",
        "setting": setting,
        "method": method,
        "capacity": None,
        "options": {},
        "seeds": [0],
        "error": error,
        "deviation": None,
        "errors": {"fog": error},
        "source_error": 40.0,
        "update_rate": 1.0,
        "images_per_second": 100.0,
        "peak_memory_mib": 1.0,
        "published": None,
        **changes,
    }


@pytest.fixture
def store(page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of a few made-up rows."""
    monkeypatch.setattr(page, "STORE", tmp_path)
    rows = [
        row("dab", 30.04, capacity=256, images_per_second=50.0),
        row("source", 40.0),
        row("tent", 41.26, deviation=0.123, seeds=[0, 1]),
        row("source", 12.0, options={"output": "markov"}),
        row("source", 39.0, setting="continual", source_error=39.0),
    ]
    page.Stored([]).add(rows, "dab bench").write("glyphs")
    return tmp_path


# The pages


@pytest.mark.parametrize("file", ["README.md", "docs/results.md"])
def test_a_page_shows_the_stored_results(page, file):
    path = page.ROOT / file
    assert path.read_text() == page.rendered()[path], (
        f"{file} differs from docs/results: edit the texts there, then run `python docs/results.py`"
    )


def test_the_pages_use_every_file_of_results(page):
    text = (page.STORE / "results.md.in").read_text()
    used = set(re.findall(r"\{\{\w+ ([\w-]+)", text))
    used |= {"learning-rates"} if "{{rates}}" in text else set()
    assert {path.stem for path in page.STORE.glob("*.json")} <= used


@pytest.mark.parametrize("name", ["ranks", "error_cost"])
def test_a_picture_shows_the_stored_results(page, name):
    import result_figures

    assert result_figures.shown(name) == page.fingerprint(), "run `python docs/results.py`"


def test_the_suites_use_the_rates_that_the_rule_chooses(page):
    assert page.chosen_rates() == suites.CHOSEN


# How they are made


def test_a_table_marks_the_best_and_what_is_worse_than_the_source(page, store):
    assert page.Pages().table("glyphs").splitlines() == [
        "| method | sorted | shuffled | cost |",
        "| --- | ---: | ---: | ---: |",
        "| source | 40.0 | **39.0** | 1.0 |",
        "| TENT | 41.3 ± 0.1 ↑ |  | 1.0 |",
        "| DAB, M = 256 | 30.0 |  | 2.0 |",
        "| source + Markov prior | **12.0** |  | 1.0 |",
    ]


def test_published_errors_stand_beside_ours(page, store):
    assert page.Pages().table("glyphs", "paper").splitlines() == [
        "| method | sorted, paper | sorted | shuffled, paper | shuffled | cost |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| source | 60.2 | 40.0 | 60.2 | **39.0** | 1.0 |",
        "| TENT | 80.6 | 41.3 ± 0.1 ↑ | 54.5 |  | 1.0 |",
        "| DAB, M = 256 | 62.1 | 30.0 | 48.2 |  | 2.0 |",
        "| source + Markov prior |  | **12.0** |  |  | 1.0 |",
    ]
    assert page.Pages().paper("sorted", "roid") == "16.8*"
    assert page.Pages().paper("shuffled", "note") == "54.2"


def test_the_summary_has_the_methods_of_several_benchmarks(page, store, monkeypatch):
    drive = [row("source", 9.0, setting="drive+tracks"), row("lame", 8.0, setting="drive+tracks")]
    page.Stored([]).add([*drive, row("tent", 7.0, setting="drive+tracks")], "dab bench").write("v")
    monkeypatch.setattr(page, "BENCHMARKS", {"glyphs": "glyphs", "v": "video"})
    assert page.Pages().summary().splitlines() == [
        "| method | glyphs, sorted | glyphs, shuffled | video, drive |",
        "| --- | ---: | ---: | ---: |",
        "| source | 40.0 | **39.0** | 9.0 |",
        "| TENT | 41.3 ± 0.1 ↑ |  | **7.0** |",
    ]


def test_a_text_gets_the_numbers_that_it_asks_for(page, store):
    text = "DAB has {{error glyphs sorted dab:256}}, fog {{domain glyphs sorted tent fog}}."
    assert page.Pages().render(text) == "DAB has 30.0, fog 41.3."
    with pytest.raises(ValueError, match="only: dab:256, source, source\\+markov, tent"):
        page.Pages().error("glyphs", "sorted", "dab:64")


def test_new_rows_replace_old_ones(page, store):
    stored = page.Stored.read("glyphs").add(
        [row("tent", 20.0, seeds=[0, 1]), row("roid", 10.0)], "dab run"
    )
    stored.write("glyphs")
    read = page.Stored.read("glyphs")
    assert [(batch["command"], len(batch["rows"])) for batch in read.batches] == [
        ("dab bench", 4),
        ("dab run", 2),
    ]
    assert page.Pages().error("glyphs", "sorted", "tent") == "20.0"
    lines = (store / "glyphs.json").read_text().splitlines()
    assert sum('"method": "roid"' in line for line in lines) == 1  # a row is a line
    assert json.loads("\n".join(lines)) == read.batches


@pytest.mark.parametrize("parts", [[3], [1, 1, 1], [2, 1], [1, 2], [2, 3], [4, 1, 1]])
def test_rows_of_other_seeds_are_averaged_exactly(page, store, parts):
    numbers = [30.0, 31.5, 29.2, 33.3, 30.7, 28.1][: sum(parts)]
    pieces, seed = [], 0
    for count in parts:
        own = numbers[seed : seed + count]
        spread = {"seeds": [*range(seed, seed + count)], "track_error": fmean(own) / 2}
        deviation = stdev(own) if count > 1 else None
        pieces.append(row("roid", fmean(own), deviation=deviation, **spread))
        seed += count
    stored = page.Stored.read("glyphs")
    for piece in pieces:
        stored = stored.add([piece], "dab bench")
    (found,) = (found for found in stored.rows if found.method == "roid")
    assert found.seeds == tuple(range(len(numbers)))
    assert found.error == pytest.approx(fmean(numbers), abs=1e-3)  # stored with three digits
    assert found.deviation == pytest.approx(stdev(numbers), abs=2e-3)
    assert found.errors["fog"] == pytest.approx(fmean(numbers), abs=1e-3)
    assert found.track_error == pytest.approx(fmean(numbers) / 2, abs=1e-3)


def test_rows_that_share_a_seed_are_replaced(page, store):
    new = row("tent", 20.0, seeds=[0, 1, 2], deviation=0.5)  # the store has 0 and 1
    stored = page.Stored.read("glyphs").add([new], "dab bench")
    (tent,) = (found for found in stored.rows if found.method == "tent")
    assert (tent.seeds, tent.error, tent.deviation) == ((0, 1, 2), 20.0, 0.5)
    methods = [[old["method"] for old in batch["rows"]] for batch in stored.batches]
    assert methods == [["source", "source", "dab", "source"], ["tent"]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("cotta", 20.0, precision="bf16")], "cotta on correlated: the pages show full"),
        (
            [row("source", 40.0), row("cotta", 20.0, setting="continual")],
            "no run of the source model on glyphs, continual",
        ),
        (
            [row("source", 30.0, options={"output": "markov"}), row("cotta", 20.0)],
            "no run of the source model on glyphs, correlated",
        ),
    ],
)
def test_a_folder_of_runs_that_cannot_be_compared_is_refused(
    page, store, monkeypatch, rows, message
):
    before = (store / "glyphs.json").read_text()
    monkeypatch.setattr(page, "finished_runs", lambda folder: rows)
    monkeypatch.setattr(page, "summarize", lambda runs: [Row(**one) for one in runs])
    with pytest.raises(ValueError, match=message):
        page.store("glyphs", store, "dab bench")
    assert (store / "glyphs.json").read_text() == before


def test_no_seed_is_lost(page, store):
    stored = page.Stored.read("glyphs")
    with pytest.raises(ValueError, match=r"tent on correlated is stored with the seeds \[0, 1\]"):
        stored.add([row("tent", 20.0, seeds=[1, 2], deviation=0.5)], "dab bench")
    spread = {"seeds": [0, 1, 2], "deviation": 0.25}
    several = [row("source", 40.0, **spread), row("roid", 20.0, **spread)]
    one = [row("source", 40.0), row("eata", 30.0)]
    for folders in ([several, one], [one, several]):
        found = stored
        for rows in folders:
            found = found.add(rows, "dab bench")
        (source,) = (
            row for row in found.rows if page.key(row) == "source" and row.setting == "correlated"
        )
        assert (source.seeds, source.deviation) == ((0, 1, 2), 0.25)


@pytest.mark.parametrize(
    "other",
    [
        row("roid", 10.0, errors={"snow": 10.0}),
        row("roid", 10.0, source_error=50.0),
    ],
)
def test_rows_of_another_stream_are_refused(page, store, other):
    with pytest.raises(ValueError, match="roid and source on glyphs, correlated are not"):
        page.Stored.read("glyphs").add([other], "dab bench")


def test_rows_of_several_versions_are_refused(page, store):
    with pytest.raises(ValueError, match="runs of several versions"):
        page.Stored([]).add([row("tent", 20.0), row("tent", 21.0)], "dab bench")


def test_rows_that_would_look_alike_are_refused(page, store):
    twins = [row("tent", 1.0, options={"lr": 1.0}), row("tent", 2.0, options={"lr": 2.0})]
    page.Stored([]).add(twins, "dab bench").write("glyphs")
    with pytest.raises(ValueError, match="two rows are called 'tent'"):
        page.Pages().table("glyphs")


@pytest.mark.parametrize(
    ("errors", "factor"),
    [
        ({0.25: 40.0, 1: 39.7, 4: 39.4, 16: 39.3}, 1),
        ({0.25: 40.0, 1: 40.0, 4: 39.4, 16: 39.0}, 4),
        ({0.25: 40.0, 1: 44.0, 4: 40.0, 16: 60.0}, 0.25),
        ({0.25: 50.0, 1: 45.0, 4: 40.0, 16: 30.0}, 16),
    ],
)
def test_the_rate_nearest_to_the_published_one_is_chosen(page, errors, factor):
    assert page.chosen_factor(errors) == factor


def test_held_out_errors_are_means_of_both_orders(page):
    def rows(setting: str, base: float) -> list[Row]:
        rate = suites.published_rate("tent")
        return [
            Row(**row("tent", base + factor, setting=setting, options={"lr": factor * rate}))
            for factor in suites.FACTORS
        ]

    both = [*rows("correlated", 20.0), *rows("continual", 10.0)]
    assert page.measured_rates([Row(**row("source", 1.0)), *both]) == {
        "glyphs": {"tent": {f"{factor:g}": 15.0 + factor for factor in suites.FACTORS}}
    }
    with pytest.raises(ValueError, match=r"glyphs, tent, rate x0\.25: 1 orders instead of 2"):
        page.measured_rates(both[:5])


def test_the_pictures_show_the_methods_that_were_run_on_all_streams(page, store):
    import result_figures

    rows = [row(method, 40.0, data="cifar10") for method in ("source", "tent", "roid")]
    page.Stored([]).add(rows, "dab bench").write("cifar10")
    shuffled = [row("tent", 39.0, setting="continual", source_error=39.0)]
    page.Stored.read("glyphs").add(shuffled, "dab bench").write("glyphs")
    streams = result_figures._streams(page.Pages())
    orders = [("cifar10", "sorted"), ("glyphs", "shuffled"), ("glyphs", "sorted")]
    assert sorted(streams) == orders
    assert {tuple(sorted(rows)) for rows in streams.values()} == {("TENT", "source")}


def test_equal_errors_share_a_rank(page):
    import result_figures

    assert result_figures.ranks({"a": 3.0, "b": 1.0, "c": 3.0}) == {"a": 2.5, "b": 1.0, "c": 2.5}
