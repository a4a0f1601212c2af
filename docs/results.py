"""Fills docs/results.md and the numbers in README.md from stored results.

    python docs/results.py                                # rewrites the pages and the pictures
    python docs/results.py add glyphs results --command "dab bench --suite glyphs"

docs/results/*.json are the results: a row for each method and stream, as `dab bench` summarizes
them, with the command, date and commit. `add` stores all finished runs of a folder. A row replaces
those whose seeds it has, and is averaged with rows of other seeds: add seeds only to a method that
has not changed since. The texts are docs/results/results.md.in and README.md.in, in which {{...}}
stands for a table or a number: see the functions of `Pages`. A test renders them again, so numbers
and text agree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import dab
from dab.benchmark import results as finished_runs
from dab.benchmark import suites
from dab.benchmark.results import tables
from dab.benchmark.results.published import Published, published
from dab.benchmark.results.summary import Row, summarize
from dab.data.corruptions import CORRUPTIONS

ROOT = Path(__file__).parent.parent
STORE = ROOT / "docs/results"
RATES = "learning-rates.json"

ORDERS = {
    "correlated": "sorted",
    "continual": "shuffled",
    "correlated:0.1": "Dirichlet(0.1)",
    "mixed": "mixed",
    "drive+tracks": "drive",
}
SHOWN_ORDERS = ("correlated", "continual", "drive+tracks")  # in the summary

# The columns of the summary.
BENCHMARKS = {
    "glyphs": "glyphs, ViT",
    "cifar10": "CIFAR-10, ViT",
    "cifar10-c": "CIFAR-10, ResNet-26-GN",
    "deit-tiny": "ImageNet, DeiT-Ti/16",
    "gtsrb": "GTSRB video, ConvNet",
}

# What is rendered in README.md.
README_BLOCK = re.compile(r"(<!-- numbers: .*? -->\n)(.*?)(<!-- end of numbers -->)", re.DOTALL)

SOURCE_TOLERANCE = 1.0  # points between the errors of the source model over different seeds
TOLERANCE = 0.5  # points by which learning rates may differ and still count as equal


@dataclass(frozen=True)
class Stored:
    """The results of one benchmark, as they were made."""

    batches: Sequence[Mapping[str, Any]]  # each with command, date, commit and rows

    @classmethod
    def read(cls, name: str) -> Stored:
        return cls(json.loads((STORE / f"{name}.json").read_text()))

    @cached_property
    def rows(self) -> list[Row]:
        """One of each method and stream, over all its seeds, in the order of the tables."""
        stored = [row for batch in self.batches for row in batch["rows"]]
        groups: dict[str, list[Row]] = {}
        # Only rows of the source model share seeds, since every folder has some: most seeds first.
        for row in sorted(stored, key=lambda row: -len(row["seeds"])):
            group = groups.setdefault(_identity(row), [])
            if not any(_share_seeds(row, other) for other in group):
                group.append(_read_row(row))
        return sorted(map(over_all_seeds, groups.values()), key=_place)

    @cached_property
    def costs(self) -> dict[str, float]:
        """CPU time per image over all orders, in multiples of the source model's.

        Of the source model in the same folder if possible: machines differ, and so does their load.
        """
        own: Counter[str] = Counter()
        of_source: Counter[str] = Counter()
        sources = {row.setting: row for row in self.rows if key(row) == "source"}
        for batch in self.batches:
            rows = [_read_row(row) for row in batch["rows"]]
            beside = sources | {row.setting: row for row in rows if key(row) == "source"}
            for row in rows:
                own[key(row)] += 1 / row.images_per_second
                of_source[key(row)] += 1 / beside[row.setting].images_per_second
        return {which: time / of_source[which] for which, time in own.items()}

    def add(self, rows: Sequence[Mapping[str, Any]], command: str) -> Stored:
        """With new rows, which replace rows of the same method and stream with the same seeds."""
        new = {_identity(row): _read_row(row) for row in rows}
        if len(new) < len(rows):
            raise ValueError("the folder has runs of several versions: use a folder for each")

        def is_current(row: Mapping[str, Any]) -> bool:
            other = new.get(_identity(row))
            if other is None or _is_source(row) or not _share_seeds(row, other):
                return True
            if not set(row["seeds"]) <= set(other.seeds):
                raise ValueError(
                    f"{row['method']} on {row['setting']} is stored with the seeds {row['seeds']}, "
                    f"of which the folder has only some: run them all again, or only others"
                )
            return False

        batches = []
        for batch in self.batches:
            kept = list(filter(is_current, batch["rows"]))
            if not all(map(_is_source, kept)):
                batches.append({**batch, "rows": kept})
        ordered = sorted(rows, key=lambda row: (row["setting"], _place(Row(**row))))
        batches.append({**_made(command), "rows": [_short(row) for row in ordered]})
        _check_same_stream([row for batch in batches for row in batch["rows"]])
        return Stored(batches)

    def write(self, name: str) -> None:
        lines = json.dumps(self.batches, indent=1, ensure_ascii=False)
        # A row is one line, so that a change of a number is one changed line.
        lines = re.sub(r"\n {4,}", " ", lines).replace("\n   }", " }")
        (STORE / f"{name}.json").write_text(f"{lines}\n")


def _made(command: str) -> dict[str, str]:
    """How and when results were made.

    The commit is the last that may have changed a number: not one of pages, tables or servers.
    """
    others = ("benchmark", "report", "cli", "serve", "fleet", "testing")
    code = ["src/dab", *(f":!src/dab/{part}" for part in others)]
    git = ["git", "log", "-1", "--format=%h", "--", *code]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"command": command, "date": str(date.today()), "commit": commit}


def _check_comparable(rows: Sequence[Row]) -> None:
    """Refuse runs in half precision, and runs without one of the source model beside them."""
    for row in rows:
        if row.precision != "fp32":
            raise ValueError(f"{row.method} on {row.setting}: the pages show full precision only")
    places = {(row.data, row.setting) for row in rows}
    for data, setting in places - {(row.data, row.setting) for row in rows if key(row) == "source"}:
        raise ValueError(
            f"no run of the source model on {data}, {setting} in the folder: costs are multiples "
            "of its time on the same machine"
        )


def _check_same_stream(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse rows that cannot stand in one column: other domains, or another source error."""
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        known = first.setdefault((row["data"], row["setting"]), row)
        same_domains = row["errors"].keys() == known["errors"].keys()
        if not same_domains or abs(row["source_error"] - known["source_error"]) > SOURCE_TOLERANCE:
            raise ValueError(
                f"{row['method']} and {known['method']} on {row['data']}, {row['setting']} are not "
                "of the same stream: store them under another name, or remove the old file"
            )


def _read_row(row: Mapping[str, Any]) -> Row:
    return Row(**{**row, "seeds": tuple(row["seeds"])})


def _share_seeds(row: Mapping[str, Any], other: Row) -> bool:
    return not set(row["seeds"]).isdisjoint(other.seeds)


def over_all_seeds(rows: Sequence[Row]) -> Row:
    """One row from several of the same method and stream, each over other seeds.

    Its costs are those of the first row; `Stored.costs` has the mean.
    """
    if len(rows) == 1:
        return rows[0]
    seeds = [len(row.seeds) for row in rows]

    def mean(values: Iterable[float]) -> float:
        return sum(n * value for n, value in zip(seeds, values, strict=True)) / sum(seeds)

    error = mean(row.error for row in rows)
    squares = sum(
        (n - 1) * (row.deviation or 0.0) ** 2 + n * (row.error - error) ** 2
        for n, row in zip(seeds, rows, strict=True)
    )
    tracks = [row.track_error for row in rows if row.track_error is not None]
    return replace(
        rows[0],
        seeds=tuple(sorted(seed for row in rows for seed in row.seeds)),
        error=error,
        deviation=math.sqrt(squares / (sum(seeds) - 1)),
        errors={domain: mean(row.errors[domain] for row in rows) for domain in rows[0].errors},
        source_error=mean(row.source_error for row in rows),
        track_error=mean(tracks) if tracks else None,
    )


def _is_source(row: Mapping[str, Any]) -> bool:
    """Whether a row is of the plain source model, which every folder has."""
    return row["method"] == "source" and not row["options"]


def _identity(row: Mapping[str, Any]) -> str:
    return json.dumps([row[k] for k in ("data", "setting", "method", "capacity", "options")])


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with no more digits than anybody needs, and without what `published` knows."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(inner) for name, inner in value.items()}
        return round(value, 3) if isinstance(value, float) else value

    plain = {name: rounded(value) for name, value in row.items() if name != "options"}
    return {**plain, "options": row["options"], "published": None}


# Methods


ORDER = ("source", *suites.PAPER_METHODS, "note", "roid", "cmf", "lame", "dab", "sequence_dab")


def key(row: Row) -> str:
    """The name of a row in the texts: "dab:64", "source+markov", "tent+guard"."""
    added = ["markov"] * (row.options.get("output") == "markov")
    added += ["guard"] * bool(row.options.get("guard"))
    size = f":{row.capacity}" if row.method == "dab" else ""
    return "+".join([row.method, *added]) + size


def label(row: Row) -> str:
    """The name of a row in tables. What is the same for a whole table is said in its text."""
    name = "source" if row.method == "source" else dab.method(row.method).title
    if row.options.get("output") == "markov":
        name += " + Markov prior"
    if row.options.get("guard"):
        name += " + guard"
    return f"{name}, M = {row.capacity}" if row.method == "dab" else name


def _place(row: Row) -> tuple[Any, ...]:
    place = ORDER.index(row.method) if row.method in ORDER else len(ORDER)
    is_ours = row.method == "sequence_dab" or row.options.get("output") == "markov"
    guarded = bool(row.options.get("guard"))
    return (is_ours, place, row.capacity or 0, guarded, row.options.get("lr", 0.0))


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])


def _errors(rows: Iterable[Row]) -> dict[str, str]:
    """The errors of one column by key: the best is bold, an arrow is worse than the source."""
    rows = list(rows)
    best = min((round(row.error, 1) for row in rows), default=0.0)
    found: dict[str, str] = {}
    for row in rows:
        if key(row) in found:
            raise ValueError(f"two rows are called {key(row)!r}: {row}")
        text = f"{row.error:.1f}" + ("" if row.deviation is None else f" ± {row.deviation:.1f}")
        text = f"**{text}**" if round(row.error, 1) == best else text
        found[key(row)] = f"{text} ↑" if row.worse_than_source else text
    return found


# Learning rates


Errors = Mapping[float, float]  # by factor of the published rate


def held_out_errors() -> dict[tuple[str, str], Errors]:
    """Mean errors of both orders on the held-out corruptions, by data and method."""
    stored = json.loads((STORE / RATES).read_text())["errors"]
    return {
        (data, name): {float(factor): error for factor, error in errors.items()}
        for data, methods in stored.items()
        for name, errors in methods.items()
    }


def measured_rates(rows: Iterable[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """The same from the rows of the suites of learning rates, as it is stored."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        if row.method in suites.TUNED_METHODS:
            published_rate = suites.published_rate(row.method)
            ratio = row.options.get("lr", published_rate) / published_rate
            factor = min(suites.FACTORS, key=lambda factor: abs(factor - ratio))
            found.setdefault((row.data, row.method, factor), []).append(row.error)
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for (data, name, factor), both in sorted(found.items()):
        if len(both) != 2:
            raise ValueError(f"{data}, {name}, rate x{factor}: {len(both)} orders instead of 2")
        mean = round(sum(both) / 2, 3)
        errors.setdefault(data, {}).setdefault(name, {})[f"{factor:g}"] = mean
    return errors


def chosen_factor(errors: Errors) -> float:
    """The factor of the published rate that the rule takes.

    >>> chosen_factor({0.25: 40.0, 1: 39.7, 4: 39.4, 16: 39.3})
    1
    """
    lowest = min(errors.values())
    equal = [factor for factor, error in errors.items() if error <= lowest + TOLERANCE]
    # Of two that are equally near, the lower rate.
    return min(equal, key=lambda factor: (abs(math.log2(factor)), factor))


def chosen_rates() -> dict[tuple[str, str], float]:
    """The factors other than 1 that the rule takes, for `suites.CHOSEN`."""
    found = {place: chosen_factor(errors) for place, errors in held_out_errors().items()}
    return {place: factor for place, factor in found.items() if factor != 1}


def _published(setting: str, which: str, column: str) -> Published | None:
    """The published error of a row, by its name in the texts."""
    method, _, size = which.partition(":")
    capacity = int(size) if size else 64 if method in ("rotta", "note") else None
    return published(setting, method, capacity, column)


class Pages:
    """What the texts may ask for. A public function is a word of the texts."""

    def __init__(self) -> None:
        self._read: dict[str, Stored] = {}

    def _stored(self, name: str) -> Stored:
        if name not in self._read:
            self._read[name] = Stored.read(name)
        return self._read[name]

    def rows(self, name: str) -> list[Row]:
        """All rows of a benchmark."""
        return self._stored(name).rows

    def cost(self, name: str, row: Row) -> float:
        """CPU time per image, in multiples of the source model's."""
        return self._stored(name).costs[key(row)]

    def _row(self, name: str, order: str, which: str) -> Row:
        known = {key(row): row for row in self.rows(name) if ORDERS[row.setting] == order}
        if which not in known:
            raise ValueError(f"{name}, {order} has no {which!r}, only: {', '.join(sorted(known))}")
        return known[which]

    def error(self, name: str, order: str, which: str) -> str:
        """The error of one row: {{error glyphs sorted dab:64}}."""
        return f"{self._row(name, order, which).error:.1f}"

    def gap(self, name: str, order: str, which: str, other: str) -> str:
        """By how many points the error of one row is above that of another, as tables round."""
        high, low = (float(self.error(name, order, one)) for one in (which, other))
        return f"{high - low:.1f}"

    def best_other(self, name: str, order: str) -> str:
        """The best row that is not ours, with its error."""
        rows = [row for row in self.rows(name) if ORDERS[row.setting] == order]
        best = min((row for row in rows if not _place(row)[0]), key=lambda row: row.error)
        return f"{label(best)} with {best.error:.1f}"

    def domain(self, name: str, order: str, which: str, domain: str) -> str:
        """The error of one row under one corruption."""
        return f"{self._row(name, order, which).errors[domain]:.1f}"

    def published(self, which: str) -> str:
        """The published error of ResNet-26-GN: {{published lame}}."""
        found = _published("correlated", which, "cifar10_c")
        return "" if found is None else f"{found.error:.1f}"

    def paper(self, order: str, which: str) -> str:
        """The published error of ViT-B/16 on ImageNet-C: {{paper sorted dab:64}}."""
        (setting,) = (setting for setting, name in ORDERS.items() if name == order)
        return str(_published(setting, which, "imagenet_c") or "")

    def dates(self) -> str:
        """The first and last day of all results."""
        days = {batch["date"] for name in BENCHMARKS for batch in self._stored(name).batches}
        return " to ".join(sorted({min(days), max(days)}))

    def facts(self, name: str) -> str:
        """Seeds, dates and commits of a benchmark."""
        stored = self._stored(name)
        seeds = sorted({seed for row in stored.rows for seed in row.seeds})
        dates = sorted({batch["date"] for batch in stored.batches})
        commits = list(dict.fromkeys(batch["commit"] for batch in stored.batches))
        several = "Seeds " if len(seeds) > 1 else "Seed "
        text = several + ", ".join(map(str, seeds))
        if alone := {row.seeds[0] for row in stored.rows if len(row.seeds) == 1 < len(seeds)}:
            single = " or ".join(map(str, sorted(alone)))
            text += f" (rows without a deviation: seed {single} alone)"
        return f"{text}; {', '.join(dates)}; commit {', '.join(commits)}."

    def commands(self, name: str) -> str:
        """The commands that made the results."""
        lines = list(dict.fromkeys(batch["command"] for batch in self._stored(name).batches))
        return "\n".join(["```sh", *lines, "```"])

    def table(self, name: str, paper: str = "") -> str:
        """Errors of all methods in all orders, and their cost.

        {{table deit-tiny paper}} has the published errors of ViT-B/16 on ImageNet-C too.
        """
        rows = {key(row): row for row in self.rows(name)}
        columns: dict[str, Mapping[str, str]] = {}
        for setting, order in ORDERS.items():
            errors = _errors(row for row in self.rows(name) if row.setting == setting)
            if errors and paper:
                columns[f"{order}, paper"] = {which: self.paper(order, which) for which in rows}
            if errors:
                columns[order] = errors
        lines = [["method", *columns, "cost"]]
        for which, row in rows.items():
            numbers = [column.get(which, "") for column in columns.values()]
            lines.append([label(row), *numbers, f"{self.cost(name, row):.1f}"])
        return _table(lines)

    def summary(self) -> str:
        """Methods by benchmarks, sorted and shuffled: those that several benchmarks have."""
        columns, names = [], {}
        benchmarks: Counter[str] = Counter()
        for benchmark, title in BENCHMARKS.items():
            rows = self.rows(benchmark)
            for setting in SHOWN_ORDERS:
                chosen = [row for row in rows if row.setting == setting]
                if chosen:
                    columns.append((f"{title}, {ORDERS[setting]}", _errors(chosen)))
            names |= {key(row): row for row in rows}
            benchmarks.update({key(row) for row in rows})
        names = {which: row for which, row in names.items() if benchmarks[which] > 1}
        lines = [["method", *(title for title, _ in columns)]]
        for which in sorted(names, key=lambda which: _place(names[which])):
            errors = (column.get(which, "") for _, column in columns)
            lines.append([label(names[which]), *errors])
        return _table(lines)

    def headline(self, *which: str) -> str:
        """A line per benchmark and order, with some methods as columns."""
        names: dict[str, str] = {}
        lines = []
        for benchmark, title in BENCHMARKS.items():
            for setting in SHOWN_ORDERS:
                rows = [row for row in self.rows(benchmark) if row.setting == setting]
                rows = [row for row in rows if key(row) in which]
                errors = _errors(rows)
                names |= {key(row): label(row) for row in rows}
                if errors:
                    numbers = (errors.get(one, "") for one in which)
                    lines.append([f"{title}, {ORDERS[setting]}", *numbers])
        return _table([["", *(names[one] for one in which)], *lines])

    def comparison(self, name: str) -> str:
        """Published errors of ResNet-26-GN next to ours."""
        rows = self.rows(name)
        ours = _errors(rows)
        lines = [["method", "published", "ours", "cost"]]
        for row in rows:
            cost = self.cost(name, row)
            numbers = self.published(key(row)), ours[key(row)], f"{cost:.1f}"
            lines.append([label(row), *numbers])
        return _table(lines)

    def domains(self, name: str, order: str, *which: str) -> str:
        """Errors by corruption of some rows, or all."""
        rows = [row for row in self.rows(name) if ORDERS[row.setting] == order]
        rows = [row for row in rows if not which or key(row) in which]
        shown = [domain for domain in CORRUPTIONS if domain in rows[0].errors]
        short = [tables.SHORT.get(domain, domain.split("_")[0]) for domain in shown]
        means = _errors(rows)
        lines = [["method", *short, "mean"]]
        for row in rows:
            errors = (f"{row.errors[domain]:.1f}" for domain in shown)
            lines.append([label(row), *errors, means[key(row)]])
        return _table(lines)

    def rates(self) -> str:
        """Held-out errors by learning rate, mean of both orders; the chosen rate is bold."""
        lines = [["method", "data", *(_fraction(factor) for factor in suites.FACTORS)]]
        found = held_out_errors()
        for data, name in sorted(found, key=lambda at: (at[0] != "glyphs", ORDER.index(at[1]))):
            errors = found[data, name]
            chosen = chosen_factor(errors)
            texts = (
                f"**{error:.1f}**" if factor == chosen else f"{error:.1f}"
                for factor, error in errors.items()
            )
            lines.append([dab.method(name).title, data, *texts])
        return _table(lines)

    def render(self, text: str) -> str:
        """A text with everything that it asks for."""

        def answer(found: re.Match[str]) -> str:
            word, *arguments = shlex.split(found[1])
            asked: Callable[..., str] = getattr(self, word)
            return asked(*arguments)

        return re.sub(r"\{\{(.*?)\}\}", answer, text)


def _fraction(factor: float) -> str:
    return f"{factor:g}" if factor >= 1 else f"1/{1 / factor:g}"


def rendered() -> dict[Path, str]:
    """The pages as they should be."""
    pages = Pages()
    readme, page = ROOT / "README.md", ROOT / "docs/results.md"
    block = pages.render((STORE / "README.md.in").read_text())
    return {
        readme: README_BLOCK.sub(lambda m: m[1] + block + m[3], readme.read_text()),
        page: pages.render((STORE / "results.md.in").read_text()),
    }


def fingerprint() -> str:
    """Of all results that the pictures show; the pictures carry it."""
    content = b"".join((STORE / f"{name}.json").read_bytes() for name in ("glyphs", "cifar10"))
    return hashlib.sha256(content).hexdigest()


def store(name: str, folder: Path, command: str) -> None:
    """Store all finished runs of a folder."""
    rows = summarize(finished_runs(folder))
    if f"{name}.json" == RATES:
        content = {**_made(command), "errors": measured_rates(rows)}
        (STORE / RATES).write_text(json.dumps(content, indent=1) + "\n")
        return
    _check_comparable(rows)
    stored = Stored.read(name) if (STORE / f"{name}.json").exists() else Stored([])
    stored.add(json.loads(tables.to_json(rows)), command).write(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("add", nargs="?", choices=["add"], help="store the runs of a folder first")
    parser.add_argument("name", nargs="?", help="of the benchmark, or learning-rates")
    parser.add_argument("folder", nargs="?", type=Path, help="that dab bench wrote to")
    parser.add_argument("--command", help="that made the runs, as the page shows it")
    chosen = parser.parse_args()
    if chosen.add:
        if chosen.folder is None or chosen.command is None:
            parser.error("add needs NAME, FOLDER and --command")
        store(chosen.name, chosen.folder, chosen.command)
    for path, text in rendered().items():
        path.write_text(text)
    import result_figures

    result_figures.draw(Pages(), fingerprint())


if __name__ == "__main__":
    main()
