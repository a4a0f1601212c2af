"""The paper's own benchmark: its cells, what they take, and the right source model."""

from __future__ import annotations

import csv
from importlib import resources

import pytest

from dab.benchmark.published import published, suspicion
from dab.cli import bench, main, parser
from tests.test_tables import made_up

DATA = ("imagenet-c", "imagenet-r", "imagenet-sketch", "imagenet-d109")


def cells(*options: str):
    chosen = parser().parse_args(["bench", "--suite", "paper", *options])
    bench.complete(chosen)
    return bench.cells(chosen)


def test_the_suite_is_exactly_the_two_tables():
    text = (resources.files("dab.benchmark") / "published.csv").read_text()
    expected = [
        (row["setting"], row["method"], row["buffer"] or None, data, seed)
        for row in csv.DictReader(text.splitlines())
        if row["source"] == "paper"
        for data in DATA
        for seed in range(5)
    ]
    found = [
        (str(cell.setting), cell.method, size_of(cell), cell.data, cell.seed) for cell in cells()
    ]
    assert len(found) == 500
    assert sorted(found, key=str) == sorted(expected, key=str)


def size_of(cell) -> str | None:
    capacity = cell.all_options().get("capacity")
    return None if capacity is None else str(capacity)


def test_every_cell_of_the_suite_has_the_published_options_but_for_sizes():
    for cell in cells("--seeds", "0"):
        assert set(cell.options) <= {"capacity", "update_every"}
        if "update_every" in cell.options:
            assert cell.options["update_every"] == cell.options["capacity"]


def test_a_part_of_the_suite_may_be_chosen():
    chosen = cells("--data", "imagenet-r", "--setting", "correlated", "--seeds", "1")
    assert {(cell.data, str(cell.setting), cell.seed) for cell in chosen} == {
        ("imagenet-r", "correlated", 1)
    }
    assert len(chosen) == 15


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ("--data glyphs", "the suite 'paper' is for --data imagenet-c imagenet-r"),
        ("--setting mixed", "the suite 'paper' is for --setting continual correlated"),
    ],
)
def test_what_is_not_of_the_suite_is_refused(options, culprit, capsys):
    assert main(["bench", "--suite", "paper", *options.split()]) == 2
    assert culprit in capsys.readouterr().err


# A source model that is not the one of the paper


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("setting", ["continual", "correlated"])
@pytest.mark.parametrize("off", [-1.1, -0.9, 0.0, 0.9, 1.1])
def test_a_source_error_that_is_off_is_said(data, setting, off):
    figure = published(setting, "source", None, data.replace("-", "_"))
    error = figure.error + off
    doubt = suspicion(made_up("source", [error, error], data=data, setting=setting))
    assert (doubt is not None) == (abs(off) > 1)
    if doubt:
        assert f"{error:.1f} %" in doubt
        assert f"published are {figure.error} %" in doubt
        assert "another mean" in doubt


def test_only_the_source_model_on_the_papers_data_is_suspected():
    assert suspicion(made_up("tent", [1.0, 1.0])) is None
    assert suspicion(made_up("source", [1.0, 1.0], data="glyphs")) is None
