"""Summaries over seeds and tables of them, from made-up results."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment

from dab.benchmark import Result
from dab.benchmark.results import tables
from dab.benchmark.results.published import published
from dab.benchmark.results.summary import Row, summarize
from dab.data.corruptions import CORRUPTIONS
from tests.support.results import DOMAINS, made_up

GRID = [
    made_up("source", [55.0, 65.0], speed=400.0, update_rate=0.0),
    made_up("dab", [40.0, 60.0], capacity=4096, seed=0, speed=100.0),
    made_up("dab", [41.0, 62.0], capacity=4096, seed=1, speed=300.0),
    made_up("tent", [70.0, 91.5], update_rate=1.0),
    made_up("tent", [55.0, 64.0], lr=0.003, source_error=60.0),
    made_up("roid", [17.0, 20.0]),
    made_up("source", [10.0, 20.0], data="glyphs"),
    made_up("tent", [11.0, 20.0], data="glyphs", source_error=15.0),
    made_up("source", [56.0, 64.0], setting="continual"),
]


# Summaries


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100), st.floats(1, 1e4)),
        min_size=1,
        max_size=5,
    )
)
def test_a_row_has_the_mean_and_deviation_over_the_seeds(drawn):
    group = [
        made_up("dab", [a, b], seed=seed, source_error=c, speed=d, memory=d, update_rate=c / 100)
        for seed, (a, b, c, d) in enumerate(drawn)
    ]
    (row,) = summarize(group)
    assert row.seeds == tuple(range(len(drawn)))
    errors = [(a + b) / 2 for a, b, _, _ in drawn]
    assert row.error == pytest.approx(sum(errors) / len(errors))
    if len(drawn) == 1:
        assert row.deviation is None
    else:
        assert row.deviation == pytest.approx(statistics.stdev(errors))
    for number, domain in enumerate(DOMAINS):
        column = [figures[number] for figures in drawn]
        assert row.errors[domain] == pytest.approx(statistics.mean(column))
    assert row.source_error == pytest.approx(statistics.mean(c for _, _, c, _ in drawn))
    assert row.update_rate == pytest.approx(statistics.mean(c / 100 for _, _, c, _ in drawn))
    speeds = [d for _, _, _, d in drawn]
    assert row.images_per_second == pytest.approx(statistics.mean(speeds))
    assert row.peak_memory_mib == max(speeds)


def test_only_seeds_are_taken_together():
    rows = summarize(GRID)
    found = [(row.data, row.setting, row.name, row.capacity, row.seeds) for row in rows]
    assert found == [
        ("imagenet-c", "correlated", "source", None, (0,)),
        ("imagenet-c", "correlated", "dab", 4096, (0, 1)),
        ("imagenet-c", "correlated", "tent", None, (0,)),
        ("imagenet-c", "correlated", "tent lr=0.003", None, (0,)),
        ("imagenet-c", "correlated", "roid", None, (0,)),
        ("glyphs", "correlated", "source", None, (0,)),
        ("glyphs", "correlated", "tent", None, (0,)),
        ("imagenet-c", "continual", "source", None, (0,)),
    ]


def test_another_batch_size_is_another_row():
    rows = summarize([made_up("dab", [1.0, 2.0]), made_up("dab", [1.0, 2.0], batch_size=16)])
    assert [row.seeds for row in rows] == [(0,), (0,)]


def test_a_run_that_comes_twice_counts_once():
    result = made_up("dab", [40.0, 60.0])
    (row,) = summarize([result, result, made_up("dab", [42.0, 62.0], seed=1)])
    assert row.seeds == (0, 1)
    assert row.error == 51


def test_results_made_and_read_again_are_taken_together(tmp_path):
    crop = {"crop": (4, 4)}  # JSON has lists only
    first, second = (made_up("dab", [40.0, 60.0], seed=seed, model=crop) for seed in (0, 1))
    folder = tmp_path / first.card.run_id
    first.write(folder)
    read = Result.read(folder)
    assert read is not None
    (row,) = summarize([read, second])
    assert row.seeds == (0, 1)


def test_options_are_shown_where_they_are_not_the_defaults():
    results = [
        made_up("dab", [1.0, 2.0]),
        made_up("dab", [1.0, 2.0], capacity=1024, lr=2.5e-4),  # both by default
        made_up("dab", [1.0, 2.0], capacity=64, lr=0.001, trigger="any"),
    ]
    plain, tuned = summarize(results)
    assert (plain.name, plain.capacity, plain.options) == ("dab", 1024, {})
    assert (tuned.name, tuned.capacity) == ("dab trigger=any lr=0.001", 64)


def test_the_source_is_never_worse_than_itself():
    rows = summarize(
        [made_up("source", [10.1, 20.2], seed=seed, source_error=None) for seed in range(3)]
    )
    assert not rows[0].worse_than_source
    assert rows[0].source_error == rows[0].error


# The paper's figures


def test_published_figures_are_found():
    rows = {(row.setting, row.data, row.name): row.published for row in summarize(GRID)}
    assert rows["correlated", "imagenet-c", "source"] == (60.2, "paper")
    assert rows["correlated", "imagenet-c", "dab"] == (49.6, "paper")
    assert rows["correlated", "imagenet-c", "tent"] == (80.6, "paper")
    assert rows["correlated", "imagenet-c", "roid"] == (16.8, "authors' benchmark")
    assert rows["continual", "imagenet-c", "source"] == (60.2, "paper")
    assert rows["correlated", "glyphs", "tent"] is None


def test_every_published_figure_is_an_error_of_a_known_method():
    sizes = {"dab": (64, 256, 1024, 4096), "note": (64, 256, 1024, 4096), "rotta": (64,)}
    data = ("imagenet_c", "imagenet_r", "imagenet_sketch", "imagenet_d109")
    names = ["source", "tent", "cotta", "adacontrast", "eata", "sar", "roid", "lame"]
    cells = [(name, None) for name in names]
    cells += [(name, size) for name, all_sizes in sizes.items() for size in all_sizes]
    found = {
        (setting, name, size): [published(setting, name, size, part) for part in data]
        for setting in ("continual", "correlated")
        for name, size in cells
    }
    lacking = {cell for cell, figures in found.items() if None in figures}
    assert lacking == {
        ("continual", name, size)
        for name, size in cells
        if (name, size) in {("dab", 1024), ("dab", 4096)} or (name == "note" and size != 64)
    }
    figures = [figure for row in found.values() for figure in row if figure]
    assert all(0 < figure.error < 100 for figure in figures)
    assert {figure.source for figure in figures} == {"paper", "authors' benchmark"}


# Tables


def texts(lines: list[tables.Line]) -> list[list[str]]:
    return [[entry.text for entry in line] for line in lines]


def test_a_table_by_method_has_the_shape_of_the_papers():
    found = tables.by_method(summarize(GRID))
    assert list(found) == ["correlated", "continual"]
    assert texts(found["correlated"]) == [
        ["method", "M", "imagenet-c", "published", "glyphs", "updates"],
        ["source", "", "60.0", "60.2", "15.0", "0 % / 25 %"],
        ["dab", "4096", "50.8 ± 1.1", "49.6", "", "25 %"],
        ["tent", "", "80.8 ↑", "80.6", "15.5 ↑", "100 % / 25 %"],
        ["tent lr=0.003", "", "59.5", "80.6", "", "25 %"],
        ["roid", "", "18.5", "16.8*", "", "25 %"],
    ]
    assert texts(found["continual"])[1] == ["source", "", "60.0", "60.2", "25 %"]


def test_a_table_by_domain_has_a_column_for_each():
    found = tables.by_domain(summarize(GRID))
    assert list(found) == ["imagenet-c, correlated", "glyphs, correlated", "imagenet-c, continual"]
    assert texts(found["imagenet-c, correlated"])[:3] == [
        ["method", "M", "fog", "gauss", "mean"],
        ["source", "", "55.0", "65.0", "60.0"],
        ["dab", "4096", "40.5", "61.0", "50.8 ± 1.1"],
    ]


def test_runs_over_other_domains_leave_places_empty():
    rows = summarize([made_up("source", [1.0, 2.0]), made_up("dab", [3.0], domains=["snow"])])
    (lines,) = tables.by_domain(rows).values()
    assert texts(lines)[0][2:] == ["fog", "gauss", "snow", "mean"]
    assert texts(lines)[1][2:] == ["1.0", "2.0", "", "1.5"]
    assert texts(lines)[2][2:] == ["", "", "3.0", "3.0"]


def test_the_short_names_of_the_domains_are_all_different():
    rows = summarize([made_up("source", [1.0] * 15, domains=CORRUPTIONS)])
    (lines,) = tables.by_domain(rows).values()
    head = texts(lines)[0]
    assert len(set(head)) == len(head) == 18


def test_the_best_of_each_data_set_is_marked_and_whatever_is_worse_than_source():
    found = tables.by_method(summarize(GRID))["correlated"]
    marked = {
        (line[0].text, entry.text): (entry.best, entry.worse) for line in found for entry in line
    }
    assert {place for place, (best, _) in marked.items() if best} == {
        ("roid", "18.5"),
        ("source", "15.0"),
    }
    assert {place for place, (_, worse) in marked.items() if worse} == {
        ("tent", "80.8 ↑"),
        ("tent", "15.5 ↑"),
    }


def unmarked(text: str) -> float:
    return float(re.sub(r"[*↑]| ±.*", "", text))


def markdown_tables(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    for section in text.split("### ")[1:]:
        title, _, table = section.partition("\n\n")
        lines = [line.strip("|").split("|") for line in table.strip().splitlines()]
        yield title, [[cell.strip() for cell in line] for line in lines]


def test_markdown_has_all_numbers(tmp_path):
    rows = summarize(GRID)
    tables.write(rows, tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert text.startswith("Error in %")
    assert "*: not in the paper, from its authors' benchmark." in text.splitlines()[0]
    found = dict(markdown_tables(text))
    assert list(found) == [*tables.by_method(rows), *tables.by_domain(rows)]
    for head, rule, *lines in found.values():
        assert {len(line) for line in lines} == {len(head)} == {len(rule)}
        assert all(re.fullmatch("-+:?", cell) for cell in rule)
    head, _, *lines = found["correlated"]
    column = head.index("imagenet-c")
    there = {(line[0], line[1]): line for line in lines}
    for row in rows:
        if (row.data, row.setting) != ("imagenet-c", "correlated"):
            continue
        line = there[row.name, "" if row.capacity is None else str(row.capacity)]
        assert unmarked(line[column]) == pytest.approx(row.error, abs=0.05)
        assert row.published is not None
        assert unmarked(line[column + 1]) == row.published.error
    assert there["roid", ""][column : column + 2] == ["**18.5**", "16.8*"]


def test_a_legend_explains_only_the_signs_that_are_there():
    with_star, without = summarize(GRID), summarize(GRID[:4])
    assert "*:" in tables.legend(with_star)
    assert "*:" not in tables.legend(without)


def test_videos_have_a_column_for_the_error_of_tracks():
    videos = [
        replace(made_up("source", [10.0, 20.0], data="video", seed=seed), track_error=error)
        for seed, error in enumerate((1.0, 4.5))
    ]
    rows = summarize([*videos, *GRID])
    (lines, _) = tables.by_method(rows).values()
    texts = [[entry.text for entry in line] for line in lines]
    assert texts[0][:6] == ["method", "M", "video", "tracks", "imagenet-c", "published"]
    assert texts[1][2:4] == ["15.0 ± 0.0", "2.8"]
    assert {line[3] for line in texts[2:]} == {""}
    assert "tracks: " in tables.legend(rows)
    assert "tracks: " not in tables.legend(summarize(GRID))


def test_a_legend_speaks_of_a_deviation_only_if_there_is_one():
    seeds = [made_up("tent", [50.0, 60.0], seed=seed) for seed in (0, 1)]
    assert tables.legend(summarize(seeds)).startswith("Error in %, mean ± standard deviation over")
    assert tables.legend(summarize(seeds[:1])).startswith("Error in %, one seed. ")


def test_csv_has_all_numbers(tmp_path):
    rows = summarize(GRID)
    tables.write(rows, tmp_path)
    lines = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        for name in ("data", "setting", "method", "precision"):
            assert line[name] == getattr(row, name)
        for name in (
            *("capacity", "error", "deviation", "source_error"),
            *("update_rate", "images_per_second", "peak_memory_mib"),
        ):
            value = getattr(row, name)
            assert (float(line[name]) if line[name] else None) == value, name
        assert line["seeds"].split() == [str(seed) for seed in row.seeds]
        assert line["options"] == ("lr=0.003" if row.options else "")
        assert {domain: float(line[domain]) for domain in DOMAINS} == row.errors
        if row.published is None:
            assert (line["published"], line["published_by"]) == ("", "")
        else:
            assert (float(line["published"]), line["published_by"]) == row.published


def test_json_has_all_numbers(tmp_path):
    rows = summarize(GRID)
    written = tables.write(rows, tmp_path)
    assert written == [tmp_path / f"table.{kind}" for kind in ("md", "csv", "json")]
    assert sorted(tmp_path.iterdir()) == sorted(written)
    for line, row in zip(json.loads((tmp_path / "table.json").read_text()), rows, strict=True):
        figure = line.pop("published")
        assert line.pop("seeds") == list(row.seeds)
        assert {**line, "seeds": row.seeds, "published": row.published} == vars(row)
        assert figure == (None if row.published is None else list(row.published))


# On the terminal


def printed(rows: Sequence[Row], width: int) -> str:
    file = io.StringIO()
    tables.show(tables.by_domain(rows), Console(file=file, width=width))
    return file.getvalue()


def segments(lines: list[tables.Line]) -> dict[str, Segment]:
    """The pieces of a table on a terminal by their text."""
    console = Console(width=200, force_terminal=True, color_system="truecolor", file=io.StringIO())
    return {piece.text.strip(): piece for piece in console.render(tables.to_rich("title", lines))}


def is_red(segment: Segment) -> bool:
    color = segment.style and segment.style.color
    return bool(color and color.name == "red")


def is_bold(segment: Segment) -> bool:
    return bool(segment.style and segment.style.bold)


def test_worse_than_source_is_red_and_the_best_is_bold():
    found = segments(tables.by_method(summarize(GRID))["correlated"])
    assert {text for text, piece in found.items() if is_red(piece)} == {"80.8 ↑", "15.5 ↑"}
    head = {"title", "method", "M", "imagenet-c", "published", "glyphs", "updates"}
    assert {text for text, piece in found.items() if is_bold(piece)} == head | {"18.5", "15.0"}
    assert {"16.8*", "49.6"} <= found.keys()


def test_what_is_best_and_worse_than_source_is_both():
    rows = summarize([made_up("tent", [70.0, 91.5])])  # without the source in the table
    piece = segments(tables.by_method(rows)["correlated"])["80.8 ↑"]
    assert is_red(piece)
    assert is_bold(piece)


@pytest.mark.parametrize("width", [40, 80, 300])
def test_a_narrow_terminal_loses_no_figure(width):
    errors = [20 + number + 0.5 for number in range(15)]
    rows = summarize([made_up("dab", errors, domains=CORRUPTIONS)])
    text = printed(rows, width)
    assert "…" not in text
    for error in errors:
        assert f" {error:.1f} " in text


def test_a_table_of_nothing_is_nothing(tmp_path: Path):
    assert tables.by_method([]) == tables.by_domain([]) == {}
    assert printed([], 80) == ""
