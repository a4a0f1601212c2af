"""What was measured of each method: the table `measured.csv` beside this file.

`python -m benchmarks.methods` writes it; `dab methods` and docs/methods.md show it.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE", "Measured", "read", "write"]

FILE = Path(__file__).with_name("measured.csv")


class Measured(NamedTuple):
    """The measurements of a method; docs/methods.md says on which nets and streams."""

    counted: float  # cost per image in forward passes, from the passes that were made
    cost: float  # the same, in CPU time
    memory: float  # peak in MiB beyond the model and the batch
    state: float  # what is saved, in KiB
    shuffled: float  # errors in percent
    sorted: float
    single: float


def read(file: Path = FILE) -> dict[str, Measured]:
    """The measurements by method; methods from elsewhere have none.

    >>> read()["source"].cost
    1.0
    """
    with file.open(newline="") as lines:
        rows = csv.DictReader(lines)
        return {
            row["method"]: Measured(*(float(row[field]) for field in Measured._fields))
            for row in rows
        }


def write(measured: dict[str, Measured], file: Path = FILE) -> None:
    """Write what `read` returns."""
    with file.open("w", newline="") as lines:
        table = csv.writer(lines, lineterminator="\n")
        table.writerow(["method", *Measured._fields])
        table.writerows([name, *row] for name, row in measured.items())
