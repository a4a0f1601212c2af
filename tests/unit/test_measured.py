"""The measurements of the methods are complete, and shown as they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

import dab
from benchmarks.methods import row
from dab.cli.measured import Measured, read, write
from dab.cli.methods import describe

DOCS = Path(__file__).parent.parent.parent / "docs"
# Others may be registered by other tests.
METHODS = [name for name in dab.methods() if dab.method(name).__module__.startswith("dab.")]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured_and_the_docs_show_it(method):
    found = read()[method]
    # What dry runs estimate with.
    assert dab.method(method).forwards == pytest.approx(found.cost, rel=0.25)
    assert describe(method)["measured"] == found._asdict()
    assert row(method, found) in (DOCS / "methods.md").read_text().splitlines()


def test_measurements_are_read_as_they_were_written(tmp_path):
    table = {"tent": Measured(2.2, 2.3, 8, 38, 29.3, 35.7, 99.0)}
    write(table, tmp_path / "measured.csv")
    assert read(tmp_path / "measured.csv") == table
