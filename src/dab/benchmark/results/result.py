"""The result of a run, and the file that keeps it."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dab.benchmark.results.identity import FormatError, RunCard
from dab.utils import files
from dab.utils.files import Location
from dab.utils.typed_json import canonical, from_json, parse, to_json

__all__ = ["GuardLog", "Problem", "Result", "count_outdated", "read_run_file", "results"]

logger = logging.getLogger("dab")

FILE = "result.json"
LARGEST = 16 * 2**20  # bytes of a result or progress file; a usual one has some kB


@dataclass(frozen=True)
class Problem:
    """A run that is left out, and why.

    >>> print(Problem("results/1a2b", "skipped: written by an older version of dab"))
    results/1a2b: skipped: written by an older version of dab
    """

    run: str  # its folder
    reason: str

    def __str__(self) -> str:
        return f"{self.run}: {self.reason}"


@dataclass(frozen=True)
class GuardLog:
    """What the guard of a run noticed, without labels."""

    rollbacks: tuple[int, ...]  # images seen at each
    estimates: tuple[float | None, ...]  # error over time in %; None before the first comparison


@dataclass(frozen=True)
class Result:
    """The numbers of a finished run. Errors are in %.

    Seconds, images per second and memory are measured. All else is reproduced to the bit, no
    matter when the run is made or how often it is interrupted.
    """

    card: RunCard
    error: float  # plain mean over the domains
    errors: Mapping[str, float]  # by domain
    window: int  # images in a window
    windows: tuple[float, ...]  # error over time
    predictions: str  # a hash of every single prediction
    updates: int
    update_rate: float  # share of the calls that updated
    admitted: int
    skipped: int  # calls that learned nothing because a number was not finite
    seconds: float  # of CPU time in the adapter
    images_per_second: float  # of CPU time
    peak_memory_mib: float  # resident, of the process
    guard: GuardLog | None = None  # None: the run had no guard
    track_error: float | None = None  # of videos: tracks whose most frequent prediction is wrong

    def write(self, folder: Location) -> None:
        """Write the result into the run's folder, with a checksum."""
        content = {"run_id": self.card.run_id, **to_json(self)}
        content["checksum"] = _checksum(content)
        files.write(folder / FILE, json.dumps(content, indent=1))

    @staticmethod
    def exists(folder: Location) -> bool:
        """Whether the run in a folder has finished."""
        return (folder / FILE).exists()

    @classmethod
    def read(cls, folder: Location) -> Result | None:
        """The result in a folder, or None if its run has not finished.

        Raises a `ValueError` that names the file if it is damaged, edited or of another run.
        """
        file = folder / FILE
        if not cls.exists(folder):
            return None
        try:
            return _read(folder)
        except ValueError as error:
            raise ValueError(f"{file} is not usable ({error}): remove it to rerun") from error


def results(out: Location, problems: list[Problem] | None = None) -> Iterator[Result]:
    """All finished runs of a folder.

    Results that are damaged, edited, of another run or of an older version of dab are left out.

    Args:
        out: the folder of all results.
        problems: collects what was left out and why; None: each is logged as a warning.
    """
    for file in files.in_subfolders(out, FILE):
        with skipping(file.parent, problems):
            yield _read_cached(file.parent, files.version(file))


def count_outdated(out: Location) -> int:
    """The number of finished runs in a folder that another version of dab wrote."""
    return sum(_is_outdated(file.parent) for file in files.in_subfolders(out, FILE))


def _is_outdated(folder: Location) -> bool:
    try:
        read_run_file(folder, FILE)
    except FormatError:
        return True
    except (OSError, ValueError):  # damaged: reported if the run is needed
        return False
    return False


@contextmanager
def skipping(folder: Location, problems: list[Problem] | None) -> Iterator[None]:
    """Turn an error in reading a run's files into a problem, or into a warning if None."""
    try:
        yield
    except (OSError, ValueError) as error:
        problem = Problem(str(folder), f"skipped: {error}; rerun or delete it")
        if problems is None:
            logger.warning("%s", problem)
        else:
            problems.append(problem)


@lru_cache(maxsize=4096)
def _read_cached(folder: Location, version: tuple[int, ...]) -> Result:
    """A result, read once for each time that its file is written."""
    return _read(folder)


def _read(folder: Location) -> Result:
    content = read_run_file(folder, FILE)
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise ValueError(f"{FILE} does not match its checksum")
    if content.pop("run_id", None) != content["card"].run_id:
        raise ValueError(f"{FILE} is of another run")
    result = from_json(Result, content)
    if result.errors.keys() - set(result.card.data.domains) or not result.errors:
        raise ValueError(f"{FILE}: errors do not belong to the domains of the card")
    return result


def read_run_file(folder: Location, name: str) -> dict[str, Any]:
    """What a run wrote about itself, with the `RunCard` under "card"; else a `ValueError`.

    The card has to be that of the folder. Never waits, whatever lies under the name.
    """
    try:
        content = parse(files.read(folder / name, LARGEST))
        if not isinstance(content, dict) or "card" not in content:
            raise ValueError("it has no identity card")
        content["card"] = RunCard.from_json(content["card"])
    except FormatError:
        raise
    except ValueError as error:
        raise ValueError(f"{name} is damaged ({error})") from error
    if content["card"].run_id != folder.name:
        raise ValueError(f"{name} has the card of run {content['card'].run_id}")
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(to_json(content)).encode()).hexdigest()
