"""All that a report shows of a folder of runs, as one plain dictionary."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dab.benchmark.results.identity import DataCard, RunCard
from dab.benchmark.results.result import FILE, Result, results
from dab.benchmark.results.shards import pooled
from dab.benchmark.results.summary import Row, summarize
from dab.benchmark.results.tables import SHORT
from dab.benchmark.running.progress_file import Progress, progresses
from dab.report.buffer_view import inside, read_trace
from dab.report.palette import colors, rank
from dab.report.reproduce import repeat
from dab.utils.files import Location

__all__ = ["NoRunsError", "gather"]

# Of the insides of buffers, in characters: a page of 500 runs stays below 5 MB.
INSIDES = 2_800_000

# What the rows of a stream have in common, and what is named anyway or differs by the seed.
SAME = {"method", "data", "model", "setting", "batch_size", "shard", "seed", "source_error"}


class NoRunsError(ValueError):
    """There is nothing to show."""


@dataclass(frozen=True)
class Run:
    """A run that has ended or is under way, or all pieces of a stream that was dealt out."""

    names: tuple[str, ...]  # of its folders
    card: RunCard
    window: int
    windows: Sequence[float]
    result: Result | None
    progress: Progress | None

    @property
    def stream(self) -> str:
        """The same for runs that can be compared: they were shown the same but for the seed."""
        return self.card.stream_id

    @property
    def row(self) -> str:
        """The same for runs that differ in their seeds alone."""
        return self.card.group_id


def gather(out: Location) -> dict[str, Any]:
    """What there is to show of the runs in a folder; a `NoRunsError` if there are none."""
    if not out.is_dir():
        raise NoRunsError(f"there is no folder {out}")
    runs = sorted(_runs(out), key=_place)
    if not runs:
        raise NoRunsError(f"{out} has no runs: `dab bench --out {out}` makes some")
    streams: dict[str, list[Run]] = {}
    for run in runs:
        streams.setdefault(run.stream, []).append(run)
    described = [_stream(name, members, out) for name, members in streams.items()]
    _label(described)
    samples = {
        name: run.card.data.samples
        for run in _wholes(runs)
        if run.card.shard is not None and len(run.names) == run.card.shard.pieces
        for name in run.names
    }
    palette = colors(run.card.method for run in runs)
    insides, left_out = _insides(described, out)
    return {
        "title": out.resolve().name or str(out),
        "palette": {
            name: {**color._asdict(), "shape": rank(name)[0]} for name, color in palette.items()
        },
        "streams": described,
        "tables": _tables(described),
        "runs": {run.names[0]: _run(run, samples.get(run.names[0])) for run in runs},
        "insides": insides,
        "insides_left_out": left_out,
    }


def _place(run: Run) -> tuple[Any, ...]:
    """Where a run stands among others."""
    card = run.card
    options = json.dumps(card.options, sort_keys=True)
    stream = card.data.name, card.setting, run.stream
    return (
        *stream,
        rank(card.method),
        card.capacity or 0,
        options,
        card.seed,
        (card.shard.number or 0) if card.shard else 0,
    )


def _runs(out: Location) -> Iterable[Run]:
    for result in results(out):
        yield Run((result.card.run_id,), result.card, result.window, result.windows, result, None)
    for progress in progresses(out):
        card = progress.card
        yield Run((card.run_id,), card, progress.window, progress.windows, None, progress)


def _written_at(file: Location) -> int:
    """When a result was written. In a store it is final: to ask for each would be slow."""
    return file.stat().st_mtime_ns if isinstance(file, Path) else 0


def _wholes(runs: Sequence[Run]) -> list[Run]:
    """The runs as they are compared: of pieces one for all, under way until the last has ended."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.card.without_shard().run_id, []).append(run)
    done = pooled(run.result for run in runs if run.result is not None)
    by_run = {result.card.without_shard().run_id: result for result in done}
    return [_whole(group, by_run.get(name)) for name, group in groups.items()]


def _whole(pieces: Sequence[Run], result: Result | None) -> Run:
    first = pieces[0]
    if first.card.shard is None:
        return first
    samples = sum(piece.card.data.samples for piece in pieces)
    card = replace(first.card.without_shard(), data=replace(first.card.data, samples=samples))
    names = tuple(name for piece in pieces for name in piece.names)
    # Each piece has a time of its own, so there are no windows.
    return Run(names, result.card if result else card, first.window, [], result, None)


def _stream(name: str, members: Sequence[Run], out: Location) -> dict[str, Any]:
    runs = _wholes(members)
    card = runs[0].card
    data = max((run.card.data for run in runs), key=lambda data: data.samples)
    domains = data.domains
    in_pieces = card.shard is not None
    finished = next((run for run in runs if run.result is not None), None)
    folder = None if finished is None else out / finished.names[0]
    in_order = not in_pieces and not card.setting.startswith("mixed")
    sizes = _domain_sizes(folder, data) if in_order else None
    each = set(sizes or [])
    images = f"{each.pop():,} images each" if len(each) == 1 else f"{data.samples:,} images"
    return {
        "id": name,
        "data": data.name,
        "setting": card.setting_title,
        "title": f"{data.name}, {card.setting_title}",
        "detail": f"{len(domains)} domains, {images}, severity {data.severity}, "
        f"batches of {card.batch_size}, model {card.model.name}",
        "samples": data.samples,
        "window": runs[0].window,
        "domains": list(domains),
        "short": [SHORT.get(domain, domain.split("_")[0]) for domain in domains],
        "ends": None if sizes is None else [sum(sizes[: n + 1]) for n in range(len(sizes))],
        "in_pieces": in_pieces,
        "rows": _rows(runs),
    }


def _domain_sizes(folder: Location | None, data: DataCard) -> list[int]:
    sizes = None if folder is None else _sizes(folder, _written_at(folder / FILE))
    # Corruptions are made of the same images, so every domain has as many.
    domains = len(data.domains)
    return sizes or [data.samples // domains] * domains


@lru_cache(maxsize=512)
def _sizes(folder: Location, written_at: int) -> list[int] | None:
    trace = read_trace(folder)
    return trace["domain_sizes"].tolist() if "domain_sizes" in trace else None


def _rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.row, []).append(run)
    finished = [run.result for run in runs if run.result is not None]
    names = _distinct(run.row for run in runs if run.result is not None)
    summaries = dict(zip(names, summarize(finished), strict=True))
    errors = [row.error for row in summaries.values()]
    unit = min((r.seconds for r in finished if r.card.is_source), default=None)
    return [
        _row(name, group, summaries.get(name), unit, min(errors, default=None))
        for name, group in groups.items()
    ]


def _row(
    name: str,
    group: Sequence[Run],
    summary: Row | None,
    unit: float | None,
    best: float | None,
) -> dict[str, Any]:
    """A method with its options, over its seeds; of those under way only if none has ended."""
    done = [run for run in group if run.result is not None]
    shown = done or group
    underway = [run for run in group if run.result is None]
    card = shown[0].card
    found: dict[str, Any] = {
        "id": name,
        "method": card.method,
        "is_source": card.is_source,
        "capacity": card.capacity,
        "options": _options(card),
        "details": _details(card),
        "runs": [name for run in [*done, *underway] for name in run.names],
        "underway": len(underway),
        **_over_time(shown),
    }
    if summary is None:
        return found
    seconds = min(run.result.seconds for run in done if run.result)
    return found | {
        "seeds": list(summary.seeds),
        "error": summary.error,
        "deviation": summary.deviation,
        "errors": summary.errors,
        "source_error": summary.source_error,
        "worse": summary.worse_than_source,
        "best": summary.error == best,
        "published": summary.published and list(summary.published),
        "update_rate": summary.update_rate,
        "memory": summary.peak_memory_mib,
        "cost": None if unit is None else round(seconds / unit, 3),
    }


def _options(card: RunCard) -> dict[str, Any]:
    return {name: value for name, value in card.changed_options().items() if name != "capacity"}


def _over_time(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and deviation of each window over the seeds, as far as all of them have come."""
    columns = list(zip(*(run.windows for run in runs), strict=False))
    return {
        "windows": [round(fmean(column), 2) for column in columns],
        "deviations": [round(stdev(column), 2) for column in columns] if len(runs) > 1 else None,
    }


def _details(card: RunCard) -> dict[str, str]:
    """What may tell two runs of the same name on the same stream apart."""
    found: dict[str, str] = {}
    for name, value in card.to_json().items():
        if name not in SAME:
            parts = value if value and isinstance(value, dict) else {"": value}
            found |= {f"{name}.{part}".strip("."): _text(parts[part]) for part in parts}
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _label(streams: Sequence[Mapping[str, Any]]) -> None:
    """Name rows by what tells them apart within their method, and number its variants."""
    for stream in streams:
        for row in stream["rows"]:
            siblings = [other for other in stream["rows"] if other["method"] == row["method"]]
            telling = [
                name
                for name in _distinct(name for other in siblings for name in other["options"])
                if len({_text(other["options"].get(name, "default")) for other in siblings}) > 1
                and not all(_goes_with_size(name, other) for other in siblings)
            ]
            words = [row["method"]]
            if row["capacity"] is not None:
                words.append(f"M={row['capacity']}")
            words += [f"{n}={row['options'][n]}" for n in telling if n in row["options"]]
            row["label"] = " ".join(words)
            row["variant"] = siblings.index(row)
            rest = {n: v for n, v in row["options"].items() if not _goes_with_size(n, row)}
            row["line"] = _written(row["method"], rest)  # of rows that differ in size alone
            row["name"] = _written(row["method"], row["options"])
    _tell_apart(streams)


def _written(method: str, options: Mapping[str, Any]) -> str:
    return " ".join([method, *(f"{name}={value}" for name, value in options.items())])


def _goes_with_size(name: str, row: Mapping[str, Any]) -> bool:
    """An update after as many samples as the buffer holds is the same rule at every size."""
    every = row["details"].get(f"options.{name}")
    return name == "update_every" and every == _text(row["capacity"])


def _tell_apart(streams: Sequence[Mapping[str, Any]]) -> None:
    """Where a stream has several rows of one name, say in all streams what differs between them."""
    names: dict[tuple[str, Any], list[list[dict[str, Any]]]] = {}
    for stream in streams:
        here: dict[tuple[str, Any], list[dict[str, Any]]] = {}
        for row in stream["rows"]:
            here.setdefault((row["name"], row["capacity"]), []).append(row)
        for name, rows in here.items():
            names.setdefault(name, []).append(rows)
    for by_stream in names.values():
        every = [row["details"] for rows in by_stream for row in rows]
        telling = [
            name
            for name in _distinct(name for details in every for name in details)
            if any(len({row["details"].get(name) for row in rows}) > 1 for rows in by_stream)
        ]
        words = {
            name: _words(name, {details[name] for details in every if name in details})
            for name in telling
        }
        for row in (row for rows in by_stream for row in rows):
            details = row.pop("details")
            if telling:
                said = ", ".join(words[n].get(details.get(n, ""), f"no {n}") for n in telling)
                for text in ("label", "name", "line"):
                    row[text] += f" ({said})"


def _words(name: str, values: Collection[str]) -> dict[str, str]:
    """How each value of a detail is said; of hashes, as much as tells them apart.

    >>> _words("code", {"1a2b3c4d", "1a2bffff"})["1a2bffff"], _words("compute.precision", {"bf16"})
    ('code 1a2bf', {'bf16': 'bf16'})
    """
    group, _, last = name.rpartition(".")
    if last in ("device", "precision"):
        return {value: value for value in values}
    length = None
    if name in ("code", "source_images"):
        length = next(n for n in count(4) if len({value[:n] for value in values}) == len(values))
    return {value: f"{(last or group).replace('_', ' ')} {value[:length]}" for value in values}


def _tables(streams: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each setting, a line for each method and buffer size, a column for each stream."""
    tables = []
    for setting in _distinct(stream["setting"] for stream in streams):
        columns = [stream for stream in streams if stream["setting"] == setting]
        names = [stream["data"] for stream in columns]
        lines: dict[tuple[str, Any], dict[str, Any]] = {}
        for stream in columns:
            for row in stream["rows"]:
                line = lines.setdefault(
                    (row["name"], row["capacity"]),
                    {
                        **{name: row[name] for name in ("method", "name", "capacity")},
                        "rows": {},
                    },
                )
                line["rows"][stream["id"]] = row["id"]
        tables.append(
            {
                "setting": setting,
                "columns": [
                    {
                        "stream": stream["id"],
                        "title": stream["data"],
                        # Only where two of the same data have to be told apart.
                        "detail": stream["detail"] if names.count(stream["data"]) > 1 else "",
                        "published": any(row.get("published") for row in stream["rows"]),
                    }
                    for stream in columns
                ],
                "lines": sorted(
                    lines.values(),
                    key=lambda line: (rank(line["method"]), line["capacity"] or 0, line["name"]),
                ),
            }
        )
    return tables


def _run(run: Run, samples: int | None) -> dict[str, Any]:
    card, command = run.card, repeat(run.card, samples)
    title = f"{command.method}, {card.data.name}, {card.setting_title}, seed {card.seed}"
    found = {
        "title": title,
        "card": card.to_json(),
        "command": command.text,
        "notes": command.notes,
    }
    if run.result is not None:
        names = ("error", "updates", "admitted", "skipped", "seconds", "peak_memory_mib")
        return found | {name: getattr(run.result, name) for name in names}
    assert run.progress is not None
    return found | {
        "seen": run.progress.seen,
        "samples": run.progress.samples,
        "time": run.progress.time,
        "error_so_far": fmean(run.windows) if run.windows else None,
    }


def _insides(streams: Sequence[Mapping[str, Any]], out: Location) -> tuple[dict[str, Any], int]:
    """The buffers of one seed of each row, as many as there is room for; how many there is not."""
    found: dict[str, Any] = {}
    room = INSIDES
    rows = sorted(_buffered(streams), key=lambda place: place[0])
    for number, (_, row) in enumerate(rows):
        folder = out / row["runs"][0]
        look = _inside(folder, _written_at(folder / FILE))
        if look is None:
            continue
        size, content = look
        room -= size
        if room < 0:
            return found, len(rows) - number
        found[folder.name] = {"row": row["id"], **content}
    return found, 0


def _buffered(streams: Sequence[Mapping[str, Any]]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """Finished rows with a buffer, each with its place among those of its method by error."""
    for stream in (stream for stream in streams if not stream["in_pieces"]):
        rows = [row for row in stream["rows"] if row["capacity"] is not None and "error" in row]
        for row in rows:
            same = [other["error"] for other in rows if other["method"] == row["method"]]
            yield sorted(same).index(row["error"]), row


@lru_cache(maxsize=512)
def _inside(folder: Location, written_at: int) -> tuple[int, dict[str, Any]] | None:
    content = inside(read_trace(folder))
    return None if content is None else (len(json.dumps(content)), content)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
