"""Reports: what is gathered from a folder of runs, compared with its files read by hand."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
import re
import shlex
import shutil
import statistics
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import dab
from dab.benchmark import Cell, Grid
from dab.benchmark.compute import Compute
from dab.benchmark.results.identity import ComputeCard, RunCard, ShardCard
from dab.benchmark.results.published import Published
from dab.benchmark.results.result import Result, results
from dab.benchmark.results.summary import summarize
from dab.benchmark.running.evaluation import stream_of
from dab.benchmark.running.run import identity_card
from dab.benchmark.tasks import task_factory
from dab.cli import main
from dab.data.corruptions import HELD_OUT
from dab.report import Report, figures, gather, render
from dab.report import report as assembling
from dab.report.buffer_view import buffer_view, read_trace
from dab.report.figures import draw, tints
from dab.report.latex import tables
from dab.report.page import to_json
from dab.report.palette import BACKGROUND, COLORS, SOURCE, WORSE, styles
from dab.report.reproduce import repeat
from dab.report.rows import PublishedError, ReportRow, smooth
from dab.report.streams import StreamSection
from dab.report.tables import make_tables
from dab.streams import Setting, Shard
from tests.support.benchmark_task import CORRUPTIONS, run, tiny_cell, tiny_task
from tests.support.report_runs import (
    add_variants,
    make_corrected,
    make_pieces,
    make_runs,
    rewrite,
    save,
    take_back,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture
def out(runs: Path, tmp_path: Path) -> Path:
    """A copy of the runs that a test may change."""
    return Path(shutil.copytree(runs, tmp_path / "runs"))


@pytest.fixture(scope="module")
def report(runs: Path) -> Report:
    return gather(runs)


def by_hand(runs: Path, setting: str) -> dict:
    """Results of a setting by method and capacity, then by seed."""
    found: dict = {}
    for file in runs.glob("*/result.json"):
        result = json.loads(file.read_text())
        card = result["card"]
        if card["setting"] == setting:
            name = card["method"], card["options"].get("capacity")
            found.setdefault(name, {})[card["seed"]] = result | {"folder": file.parent.name}
    return found


def stream_in(report: Report, setting: str) -> StreamSection:
    (stream,) = [stream for stream in report.streams if stream.setting == setting]
    return stream


def rows_of(report: Report, setting: str) -> dict[tuple, ReportRow]:
    return {(row.method, row.capacity): row for row in stream_in(report, setting).rows}


# Numbers

LINES = [("source", None), ("tent", None), ("note", 16), ("rotta", 16), ("dab", 8), ("dab", 16)]


def test_rows_have_the_numbers_of_the_files(runs, report):
    expected, found = by_hand(runs, "correlated"), rows_of(report, "correlated")
    assert list(found) == LINES
    means = {
        name: statistics.mean(r["error"] for r in seeds.values())
        for name, seeds in expected.items()
    }
    sources = expected["source", None]
    unit = min(result["seconds"] for result in sources.values())
    for name, row in found.items():
        seeds, scores = expected[name], row.scores
        errors = [seeds[0]["error"], seeds[1]["error"]]
        assert scores.seeds == (0, 1)
        assert scores.error == pytest.approx(means[name])
        assert scores.deviation == pytest.approx(statistics.stdev(errors))
        assert scores.rank == 1 + sum(mean < means[name] for mean in means.values())
        assert scores.worse == (round(scores.error, 1) > round(means["source", None], 1))
        assert scores.difference == pytest.approx(means[name] - means["source", None])
        differences = {
            domain: statistics.mean(
                seeds[seed]["errors"][domain] - sources[seed]["errors"][domain] for seed in (0, 1)
            )
            for domain in CORRUPTIONS
        }
        assert scores.differences == pytest.approx(differences)
        assert scores.worse_domains == sum(round(d, 1) > 0 for d in differences.values())
        same = [mean for (method, _), mean in means.items() if method == name[0]]
        assert scores.leading == (means[name] == min(same))
        least = min(result["seconds"] for result in seeds.values())
        assert scores.cost == pytest.approx(least / unit, abs=1e-3)
        pairs = zip(seeds[0]["windows"], seeds[1]["windows"], strict=True)
        windows = [sum(pair) / 2 for pair in pairs]
        assert row.curve.raw == pytest.approx(windows, abs=0.01)
        assert row.curve.smooth == pytest.approx(smooth(windows, 16, [70, 140, 210]), abs=0.01)
        source = found["source", None].curve.raw
        against = [a - b for a, b in zip(row.curve.raw, source, strict=True)]
        assert row.difference.raw == pytest.approx(against, abs=0.02)
        assert row.runs == (seeds[0]["folder"], seeds[1]["folder"])
    assert found["tent", None].scores.worse
    assert found["source", None].scores.cost == 1


def test_differences_are_to_the_source_run_of_the_same_seed(out):
    (gone,) = [
        result
        for result in results(out)
        if (result.card.method, result.card.setting, result.card.seed)
        == ("source", "correlated", 1)
    ]
    shutil.rmtree(out / gone.card.run_id)
    row = rows_of(gather(out), "correlated")["dab", 16]
    assert (row.difference, row.scores.differences, row.scores.worse_domains) == (None,) * 3
    assert row.scores.source_error == pytest.approx(
        rows_of(gather(out), "correlated")["tent", None].scores.source_error
    )


def test_a_stream_says_where_its_domains_end(report):
    for stream in report.streams:
        assert stream.ends == (70, 140, 210)
        assert stream.domains == CORRUPTIONS
        assert stream.detail.startswith("3 domains, 70 images each, severity 5, batches of 16")


def test_runs_that_recorded_less_are_shown_with_less(out):
    for file in out.glob("*/trace.npz"):
        with np.load(file) as trace:
            kept = {name: trace[name] for name in ("fill", "samples", "admitted", "updated")}
        np.savez(file, **kept)
    found = gather(out)
    assert found.streams[0].ends == (70, 140, 210)  # corruptions have domains of one size
    assert found.buffers
    assert all(buffer.view.looks is None for buffer in found.buffers)
    render(found)


def test_different_streams_are_not_compared_with_each_other(report):
    assert [stream.title for stream in report.streams] == ["tiny, continual", "tiny, correlated"]
    assert [table.setting for table in report.tables] == ["continual", "correlated"]
    assert list(rows_of(report, "continual")) == [("source", None), ("dab", 16)]


def test_tables_have_a_line_for_each_method_and_size(report):
    table = report.tables[1]
    assert [(line.method, line.capacity) for line in table.lines] == LINES
    ids = {row.id for row in rows_of(report, "correlated").values()}
    assert {row for line in table.lines for row in line.rows.values()} == ids


def test_two_streams_of_the_same_data_are_told_apart(out):
    for method in ("source", "tent", "note", "rotta", "dab"):
        add_variants(out, method, {"batch_size": 99})
    table = gather(out).tables[1]
    assert [column.title for column in table.columns] == ["tiny", "tiny"]
    details = {re.search(r"batches of \d+", c.detail).group() for c in table.columns}
    assert details == {"batches of 16", "batches of 99"}


def test_the_csv_has_every_digit_of_every_finished_row(report):
    lines = list(csv.DictReader(io.StringIO(report.csv)))
    rows = [(stream, row) for stream in report.streams for row in stream.rows]
    assert len(lines) == len(rows)
    for line, (stream, row) in zip(lines, rows, strict=True):
        assert (line["data"], line["setting"], line["method"]) == (
            stream.data,
            stream.setting,
            row.method,
        )
        assert float(line["error"]) == row.scores.error
        assert line["seeds"] == " ".join(map(str, row.scores.seeds))
        for domain in CORRUPTIONS:
            assert float(line[domain]) == row.scores.errors[domain]


# Labels


def labels_of(report: Report, setting: str) -> list[str]:
    return [row.label.short for row in stream_in(report, setting).rows]


def test_labels_say_what_tells_rows_apart(report):
    labels = ["Source", "TENT", "NOTE M=16", "RoTTA M=16", "DAB M=8", "DAB M=16"]
    assert labels_of(report, "correlated") == labels
    rows = stream_in(report, "correlated").rows
    assert [row.label.variant for row in rows] == [0, 0, 0, 0, 0, 1]
    assert rows[5].label.phrase == "DAB (M\u00a0=\u00a016)"


def test_rows_that_differ_in_anything_else_are_told_apart(out, tmp_path):
    half = ComputeCard("cpu", "bf16", compile=False, threads=1)
    add_variants(out, "tent", {"code": "abcd1"}, {"code": "abcd2"}, {"source_images": "f00d"})
    add_variants(out, "note", {"compute": half})
    add_variants(out, "source", {"source_images": "f00d"})
    found = gather(out)
    labels = labels_of(found, "correlated")
    assert len(set(labels)) == len(labels) == 6 + 5
    assert {"NOTE M=16 (bf16)", "NOTE M=16 (fp32)", "DAB M=8", "DAB M=16"} <= set(labels)
    tents = [label for label in labels if label.startswith("TENT")]
    assert sum("(code abcd1, source images null)" in label for label in tents) == 1
    assert sum("source images f00d)" in label for label in tents) == 1
    table, rows = found.tables[1], stream_in(found, "correlated").rows
    assert len(table.lines) == len(labels)
    assert {id for line in table.lines for id in line.rows.values()} == {row.id for row in rows}
    text = tables(found)
    assert text.count("bf16") == 1
    assert len(re.findall("code abcd[12]", text)) == 2
    only_note = tuple(row for row in rows if row.method == "note")
    stream = replace(found.streams[1], rows=only_note, sizes=None, cost=None)
    written = draw(replace(found, streams=(stream,), buffers=()), tmp_path / "figures")
    assert "NOTE M=16 (bf16)" in next(f for f in written if f.suffix == ".svg").read_text()


def test_options_may_be_lists_and_sentences(out):
    add_variants(out, "tent", *({"options": {"layers": v}} for v in ([1, 2], [3], "all of them")))
    found = gather(out)
    labels = set(labels_of(found, "correlated"))
    assert {"TENT layers=[1, 2]", "TENT layers=[3]", "TENT layers=all of them"} <= labels
    render(found)
    tables(found)


def test_buffers_are_in_the_order_of_their_sizes(out):
    sizes = ({"options": {"capacity": size, "update_every": size}} for size in (256, 1024, 64))
    add_variants(out, "note", *sizes)
    found = gather(out)
    notes = [line for line in found.tables[1].lines if line.method == "note"]
    assert [line.capacity for line in notes] == [16, 64, 256, 1024]
    # Updating after as many samples as the buffer holds goes with its size, and is one line.
    rows = [row for row in stream_in(found, "correlated").rows if row.method == "note"]
    labels = ["NOTE M=16 lr=0.05", "NOTE M=64", "NOTE M=256", "NOTE M=1024"]
    assert [row.label.short for row in rows] == labels
    assert [row.label.line for row in rows] == ["NOTE lr=0.05", "NOTE", "NOTE", "NOTE"]
    chart = stream_in(found, "correlated").sizes
    assert chart.sizes == (8, 16, 64, 256, 1024)
    assert {line.name: len(line.rows) for line in chart.lines} == {
        "NOTE lr=0.05": 1,
        "NOTE": 3,
        "RoTTA": 1,
        "DAB": 2,
    }
    add_variants(out, "note", {"options": {"capacity": 64, "update_every": 8}})
    rows = [row for row in stream_in(gather(out), "correlated").rows if row.method == "note"]
    labels = {"NOTE M=64", "NOTE M=64 update_every=8", "NOTE M=256 update_every=256"}
    assert labels < {row.label.short for row in rows}  # 64 is the default


def test_a_method_that_is_not_installed_is_shown_by_its_name(out):
    rewrite(out, lambda card: replace(card, method="mine") if card.method == "tent" else card)
    found = gather(out)
    row = rows_of(found, "correlated")["mine", None]
    assert list(rows_of(found, "correlated"))[-1] == ("mine", None)
    assert "lr=0.3" in row.label.options
    (note,) = [note for note in found.runs[row.runs[0]].notes if "mine" in note]
    assert note == "mine is not built in: add --import with the file that defines it"


# Published numbers


def test_published_numbers_are_shown_next_to_ours(out):
    rewrite(out, lambda card: replace(card, published_as="imagenet_c"))
    found = gather(out)
    assert rows_of(found, "correlated")["tent", None].scores.published.text == "80.6"
    assert rows_of(found, "correlated")["dab", 16].scores.published is None
    assert found.tables[1].columns[0].published
    assert "80.6 " in tables(found)
    assert found.tables[1].note == ""
    assert "*" not in tables(found)


def test_numbers_that_are_not_from_the_paper_are_starred_in_latex_too(report):
    stream, table = report.streams[1], report.tables[1]
    number = PublishedError.of(Published(12.3, "benchmark"))
    rows = [replace(row, scores=replace(row.scores, published=number)) for row in stream.rows]
    columns = [replace(column, published=True) for column in table.columns]
    stream = replace(stream, rows=tuple(rows))
    (made,) = make_tables([stream])
    table = replace(table, columns=tuple(columns), note=made.note)
    changed = replace(report, streams=(stream,), tables=(table,))
    starred = tables(changed)
    assert starred.count("12.3*") == len(rows)
    assert "*: not in the paper, from its authors' benchmark.}" in starred


# Runs in progress


def test_runs_in_progress_are_shown_as_far_as_they_are(runs, out):
    finished = by_hand(runs, "correlated")
    for method, seed in ((("note", 16), 0), (("note", 16), 1), (("rotta", 16), 0)):
        result = Result.read(out / finished[method][seed]["folder"])
        take_back(result, out, 96, at=5.0)
    report = gather(out)
    found = rows_of(report, "correlated")
    assert found["note", 16].scores is None
    assert found["note", 16].in_progress == 2
    assert len(found["note", 16].curve.raw) == 6
    assert len(found["note", 16].difference.raw) == 6
    assert found["rotta", 16].scores.seeds == (1,)
    assert found["rotta", 16].in_progress == 1
    assert len(found["rotta", 16].curve.raw) == 14
    assert finished["rotta", 16][1]["folder"] in {buffer.run for buffer in report.buffers}
    one = report.runs[finished["note", 16][0]["folder"]]
    assert (one.state.seen, one.state.samples, one.state.silent) == (96, 210, 0)
    later = gather(out, now=5.0 + 150).runs[finished["note", 16][0]["folder"]]
    assert later.state.silent == 2
    assert one.state.share == pytest.approx(100 * 96 / 210)
    assert one.outcome is None
    assert "3 in progress" in report.headline
    assert "3 runs are still in progress" in stream_in(report, "correlated").opening
    assert render(report)


# Problems


def test_a_folder_without_runs_is_named(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path} has no runs: " in capsys.readouterr().err


def edited(change):
    def damage(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        change(result)
        (folder / "result.json").write_text(json.dumps(result))

    return damage


def fifo(folder: Path) -> None:
    (folder / "result.json").unlink()
    os.mkfifo(folder / "result.json")


def loop(path: Path) -> None:
    path.unlink() if path.is_file() else shutil.rmtree(path)
    path.symlink_to(path)


DAMAGE = {
    "cut": lambda folder: (folder / "result.json").write_text("{"),
    "nothing": lambda folder: (folder / "result.json").write_text(""),
    "not JSON": lambda folder: (folder / "result.json").write_bytes(b"\xff\x00"),
    "nested": lambda folder: (folder / "result.json").write_text("[" * 100_000),
    "a list": lambda folder: (folder / "result.json").write_text("[]"),
    "a FIFO": fifo,
    "a loop": lambda folder: loop(folder / "result.json"),
    "a loop of folders": loop,
    "a folder": lambda folder: (
        (folder / "result.json").unlink(),
        (folder / "result.json").mkdir(),
    ),
    "no card": edited(lambda result: result.pop("card")),
    "an empty card": edited(lambda result: result.update(card={})),
    "no domains": edited(lambda result: result["card"]["data"].update(domains=[])),
    "another setting": edited(lambda result: result["card"].update(setting="backwards")),
    "another seed": edited(lambda result: result["card"].update(seed=7)),
    "another error": edited(lambda result: result.update(error=1.0)),
    "no number": edited(lambda result: result.update(error=float("nan"))),
    "no errors": edited(lambda result: result.update(errors={})),
    "another folder": lambda folder: folder.rename(folder.with_name("elsewhere")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_run_is_named_and_the_rest_stands(damage, out, capsys):
    result = next(r for r in results(out) if (r.card.method, r.card.seed) == ("tent", 1))
    DAMAGE[damage](out / result.card.run_id)
    assert main(["report", str(out)]) == 0
    said = capsys.readouterr()
    assert "Report written to" in said.out
    (problem,) = gather(out).problems
    assert said.err.strip() == str(problem)
    where = "elsewhere" if damage == "another folder" else result.card.run_id
    assert problem.run == str(out / where)
    found = gather(out)
    assert len(found.runs) == 13
    assert rows_of(found, "correlated")["tent", None].scores.seeds == (0,)
    assert json.dumps(problem.reason)[1:-1] in (out / "report.html").read_text()


def test_damaged_progress_is_named_and_the_rest_stands(out):
    result = next(results(out))
    folder = take_back(result, out, 96)
    (folder / "progress.json").write_text("{}")
    found = gather(out)
    (problem,) = found.problems
    assert (problem.run, len(found.runs)) == (str(folder), 13)


def test_a_damaged_trace_costs_the_view_of_its_buffer_alone(out, report):
    for file in out.glob("*/trace.npz"):
        file.write_bytes(b"PK\x03\x04 not an archive")
    found = gather(out)
    assert (found.buffers, len(report.buffers)) == ((), 5)
    assert {problem.run for problem in found.problems} >= {
        str(out / buffer.run) for buffer in report.buffers
    }
    assert all("trace.npz is damaged" in problem.reason for problem in found.problems)
    assert [row.scores.error for row in found.streams[1].rows] == [
        row.scores.error for row in report.streams[1].rows
    ]


def test_if_nothing_can_be_read_all_problems_are_named(out, capsys):
    files = list(out.glob("*/result.json"))
    for file in files:
        file.write_text("{")
    assert main(["report", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{out} has no readable run" in said
    assert all(str(file.parent) in said for file in files)


# Two folders


def test_two_folders_are_compared_row_by_row(out, runs, tmp_path):
    there = Path(shutil.copytree(runs, tmp_path / "before"))
    for result in list(results(there)):
        if result.card.method == "dab" and result.card.capacity == 16:
            changed = replace(result.card, code="older")  # another id, but the same row
            worse = replace(result, card=changed, error=result.error + 2, predictions="others")
            save(worse, there)
            shutil.rmtree(there / result.card.run_id)
        if result.card.method == "note":
            shutil.rmtree(there / result.card.run_id)
        if (result.card.method, result.card.seed) == ("rotta", 1):
            shutil.rmtree(there / result.card.run_id)
    report = gather(out, there)
    found = {(row.stream, row.label): row for row in report.comparison.rows}
    assert len(found) == 7
    dab16 = found["tiny, correlated", "DAB M=16"]
    assert dab16.difference == pytest.approx(-2)
    assert dab16.deviation == pytest.approx(0, abs=1e-9)
    assert (dab16.seeds, dab16.identical) == ((0, 1), False)
    assert dab16.other_error == pytest.approx(dab16.error + 2)
    tent = found["tiny, correlated", "TENT"]
    assert (tent.difference, tent.identical) == (0, True)
    assert found["tiny, correlated", "RoTTA M=16"].seeds == (0,)
    assert found["tiny, correlated", "RoTTA M=16"].deviation is None
    assert report.comparison.only_here == ("NOTE M=16 on tiny, correlated",)
    assert report.comparison.only_there == ()
    backwards = gather(there, out).comparison
    assert backwards.only_there == ("NOTE M=16 on tiny, correlated",)
    assert len(list(csv.reader(io.StringIO(report.comparison.csv)))) == 8


def test_the_command_compares(out, runs, capsys):
    assert main(["report", str(out), "--compare", str(runs)]) == 0
    assert (out / "report.html").read_text() == render(gather(out, runs))
    assert main(["report", str(out), "--compare", str(out / "nowhere")]) == 2
    assert "there is no folder" in capsys.readouterr().err


# Streams that were split


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pieces(tmp_path_factory.mktemp("pieces"))


def test_pieces_are_reported_together(split):
    found = gather(split)
    (stream,) = found.streams
    assert stream.title == "tiny, correlated, 4 interleaved pieces"
    assert stream.detail.startswith("3 domains, 210 images, severity 5")
    expected = sorted(summarize(results(split)), key=lambda row: row.method == "dab")
    rows = {row.method: row for row in stream.rows}
    assert [(row.method, row.scores.error, row.scores.seeds) for row in stream.rows] == [
        (row.method, row.error, row.seeds) for row in expected
    ]
    assert len(rows["dab"].runs) == 8
    assert rows["dab"].scores.errors == expected[1].errors
    assert rows["dab"].scores.cost > 0
    assert len(rows["dab"].scores.differences) == 3
    (table,) = found.tables
    assert [line.method for line in table.lines] == ["source", "dab"]
    assert len(found.runs) == 16
    titles = [one.title for one in found.runs.values()]
    assert len(set(titles)) == 16
    assert "interleaved piece 2 of 4" in found.runs[rows["dab"].runs[1]].title
    assert all("--samples 70 " in one.command for one in found.runs.values())
    render(found)


def test_pieces_are_in_progress_until_all_have_finished(split, tmp_path):
    shutil.copytree(split, tmp_path / "runs")
    (row,) = [row for row in gather(split).streams[0].rows if row.method == "dab"]
    (tmp_path / "runs" / row.runs[2] / "result.json").unlink()
    found = gather(tmp_path / "runs")
    (half,) = [row for row in found.streams[0].rows if row.method == "dab"]
    assert (half.id, half.scores.seeds, half.in_progress) == (row.id, (1,), 1)
    assert half.runs[:4] == row.runs[4:]
    render(found)


# The buffer


def picture(uri: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_buffers_are_those_of_the_trace(runs, report):
    row = rows_of(report, "correlated")["dab", 16]
    (buffer,) = [buffer for buffer in report.buffers if buffer.row == row.id]
    view, looks = buffer.view, buffer.view.looks
    assert buffer.run == row.runs[0]
    trace = read_trace(runs / buffer.run)
    assert (trace["buffer_classes"] == picture(looks.buffer_classes).T).all()
    assert (trace["batch_classes"] == picture(looks.batch_classes).T).all()
    assert np.array_equal(looks.ages, np.maximum(0, trace["buffer_ages"]))
    varieties = []
    for counts, variety in zip(trace["buffer_classes"], looks.buffer_variety, strict=True):
        p = [count / sum(counts) for count in counts if count]
        varieties.append(np.exp(-sum(x * np.log(x) for x in p)))
        assert variety == pytest.approx(varieties[-1], abs=0.006)
    assert looks.mean_buffer_variety == pytest.approx(np.mean(varieties))
    assert list(view.fill) == trace["fill"].tolist()  # as few calls as windows
    assert view.admitted == pytest.approx(100 * trace["admitted"] / trace["samples"], abs=0.1)
    assert view.at[-1] == 210
    for number, shot in enumerate(looks.shots):
        labels = trace["buffer_labels"][number]
        assert list(shot.buffer.labels) == labels[labels >= 0].tolist()
        assert shot.buffer.classes == len(set(shot.buffer.labels))
        sheet = picture(shot.buffer.image)
        height, width = trace["buffer_images"].shape[2:4]
        assert sheet.shape == (-(-len(labels[labels >= 0]) // 8) * height, 8 * width, 3)
        second = sheet[:height, width : 2 * width].astype(int)
        expected = trace["buffer_images"][number, 1]
        assert abs(second - expected).mean() < 40  # a lossy picture of the right item


def test_methods_without_a_buffer_have_no_view(runs, report):
    for buffer in report.buffers:
        card = json.loads((runs / buffer.run / "result.json").read_text())["card"]
        assert card["method"] in ("dab", "note", "rotta")
        assert card["seed"] == 0  # one is enough
    assert len(report.buffers) == 5
    assert buffer_view({}) is None


def test_buffers_without_room_are_counted(runs, monkeypatch):
    sizes = [len(json.dumps(to_json(buffer.view))) for buffer in gather(runs).buffers]
    monkeypatch.setattr(assembling, "ROOM", sizes[0] + 1)
    few = gather(runs)
    assert len(few.buffers) == 1
    assert few.buffers_left_out == 4


def test_a_short_rest_of_a_stream_is_not_a_window_of_its_own():
    calls = 60 * 10 + 3
    trace = {"samples": np.full(calls, 8.0), "fill": np.ones(calls), "admitted": np.zeros(calls)}
    trace["updated"] = np.arange(calls) >= 60 * 10  # in the rest alone
    found = buffer_view(trace)
    assert len(found.at) == 60
    assert found.at[-1] == 8 * calls
    assert found.updated[-1] == pytest.approx(100 * 3 / 13, abs=0.1)
    longer = buffer_view({name: np.append(values, values[-5:]) for name, values in trace.items()})
    assert len(longer.at) == 61


# The page


def test_the_page_needs_nothing_else(report):
    page = render(report)
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)[^\"']*", page)
    addresses = set(re.findall(r"https?://[^\"' )]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches
    assert "@import" not in page
    assert "connect-src 'none'" in page
    assert re.search(r"script-src 'sha256-[^' ]+';", page)


def test_nothing_in_the_data_can_break_out_of_the_page(out):
    evil = "</script><script>alert(1)</script>"

    def worse(card: RunCard) -> dict:
        return {
            "data": replace(card.data, name=evil),
            "model": replace(card.model, name=evil, weights=evil, details={evil: evil}),
        }

    add_variants(out, "tent", {"method": evil}, {"options": {evil: evil}}, {"code": evil})
    source = next(r for r in results(out) if r.card.method == "source")
    for name, value in worse(source.card).items():
        save(replace(source, card=replace(source.card, **{name: value})), out)
    (out / evil.replace("/", "")).mkdir()
    (out / evil.replace("/", "") / "result.json").write_text("{")
    found = replace(gather(out), title=evil)
    assert evil in found.styles
    assert any(evil in stream.detail for stream in found.streams)
    assert any(evil in row.label.short for stream in found.streams for row in stream.rows)
    assert any("<script>" in problem.run for problem in found.problems)
    page = render(found)
    assert evil not in page
    assert page.count("<script") == 2
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(embedded.group(1)) == json.loads(json.dumps(to_json(found)))


def test_five_hundred_runs_stay_below_five_megabytes(runs, tmp_path):
    result = replace(next(results(runs)), windows=(12.345678,) * 150)
    trace = next(f for f in runs.glob("*/trace.npz") if "look_at" in np.load(f))
    for number in range(500):
        card = replace(
            result.card,
            method="dab",
            seed=number % 5,
            source_error=50.0,
            options={"capacity": 16 + number // 5},
        )
        shutil.copy(trace, save(replace(result, card=card), tmp_path))
    found = gather(tmp_path)
    assert len(found.runs) == 500
    assert len(found.streams[0].rows) == 100
    assert len(found.buffers) + found.buffers_left_out == 100
    assert len(render(found).encode()) < 5_000_000


def test_the_command_writes_it_all(runs, tmp_path, capsys):
    out = tmp_path / "runs"
    for name in rows_of(gather(runs), "continual")["source", None].runs:
        shutil.copytree(runs / name, out / name)
    arguments = ["--figures", str(tmp_path / "figures"), "--latex", str(tmp_path / "t.tex")]
    assert main(["report", str(out), *arguments]) == 0
    assert f"Report written to {out / 'report.html'}" in capsys.readouterr().out
    assert (out / "report.html").read_text() == render(gather(out))
    assert (tmp_path / "t.tex").read_text() == tables(gather(out))
    assert len(list((tmp_path / "figures").iterdir())) == 4
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").exists()


def test_places_that_cannot_be_written_are_named_before_anything_is(runs, tmp_path, capsys):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.touch()
    page = tmp_path / "page.html"
    for arguments, reason in {
        ("--out", folder): f"--out {folder} is a folder: name a file",
        ("--out", file / "page.html"): f"--out needs a folder, but {file} is a file",
        ("--out", page, "--latex", folder): f"--latex {folder} is a folder: name a file",
        ("--out", page, "--figures", file): f"--figures needs a folder, but {file} is a file",
    }.items():
        assert main(["report", str(runs), *map(str, arguments)]) == 2
        assert reason in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == {folder, file}


# The command that repeats a run


def glyphs_like(samples: int | None) -> object:
    return replace(tiny_task(samples=samples), name="glyphs", model_card={"name": "dab/glyphs"})


CELLS = {
    "plain": Cell("tent"),
    "options": Cell("dab", {"capacity": 64, "lr": 1e-3, "trigger": "any", "admission": "running"}),
    "output": Cell("source", {"output": "batch_prior"}),
    "None": Cell("dab", {"capacity": 8, "storage": "uint8"}),
    "seed": Cell("note", seed=7),
    "delta": Cell("tent", setting=Setting.parse("mixed+correlated:0.1")),
    "gradual": Cell("tent", setting=Setting.parse("gradual"), severity=3),
    "batches": Cell("tent", batch_size=10),
    "corruptions": Cell("tent", corruptions=("fog", "snow"), severity=2),
    "held out": Cell("tent", corruptions=HELD_OUT),
    "compute": Cell("tent", compute=Compute(precision="bf16", compile=True)),
}


def grid_of(command: str, monkeypatch: pytest.MonkeyPatch) -> Grid:
    """The grid that a command would run."""
    grids: list[Grid] = []
    for module in ("run", "bench"):
        monkeypatch.setattr(
            f"dab.cli.{module}.execute", lambda grid, *_, **__: grids.append(grid) or 0
        )
    assert main(shlex.split(command)[1:]) == 0
    return grids[0]


@pytest.fixture
def _few_glyphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(task_factory("glyphs")), "images", 70)


@pytest.mark.usefixtures("_few_glyphs")
@pytest.mark.parametrize("samples", [20, None])
@pytest.mark.parametrize("name", CELLS)
def test_the_command_of_a_card_makes_the_same_card(name, samples, monkeypatch, tmp_path):
    cell, task = CELLS[name], glyphs_like(samples)
    card = identity_card(cell, task, stream_of(cell, task, tmp_path), 12.5)
    command = repeat(card)
    assert command.notes == []
    grid = grid_of(command.text, monkeypatch)
    again, same = grid.cells()[-1], glyphs_like(grid.samples)
    assert identity_card(again, same, stream_of(again, same, tmp_path), 12.5) == card


@pytest.mark.usefixtures("_few_glyphs")
@pytest.mark.parametrize("text", ["4", "4:consecutive", "2"])
@pytest.mark.parametrize("setting", ["correlated", "mixed"])
def test_the_command_of_a_piece_makes_all_of_them(text, setting, monkeypatch, tmp_path):
    cell, task = (
        Cell("dab", {"capacity": 8}, setting=Setting.parse(setting), seed=3),
        glyphs_like(7),
    )
    cell = replace(cell, corruptions=("fog", "snow", "contrast"))

    def cards(cells: list[Cell], task: object) -> list[RunCard]:
        return [identity_card(one, task, stream_of(one, task, tmp_path), 9.5) for one in cells]

    pieces = cards([replace(cell, shard=shard) for shard in Shard.parse(text)], task)
    for card in pieces:
        command = repeat(card)
        grid = grid_of(command.text, monkeypatch)
        if len(command.notes) == 1:  # one number of images alone has such a piece
            again = [one for one in grid.cells() if one.method == "dab"]
            assert cards(again, glyphs_like(grid.samples)) == pieces
        else:
            assert re.search(r"--samples may also have been .*7|--samples 7 ", str(command))
    assert text == "4" or len(command.notes) == 1


ON_DISK_DATA = {"name": "imagenet-r", "samples": 9, "domains": ("imagenet-r",)}


def card_of(report: Report, **changes: object) -> RunCard:
    """A card of a report with some changes; those of data and model field by field."""
    card = next(iter(report.runs.values())).card
    for part in ("data", "model"):
        if part in changes:
            changes[part] = replace(getattr(card, part), **changes[part])
    return replace(card, **changes)


def model(name: str, **details: str) -> dict:
    return {"name": name, "details": details}


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        (model("timm/vit", tag="augreg"), {}, "--model timm/vit.augreg"),
        (model("torchvision/vit_b_16", tag="V2"), {}, "--model torchvision/vit_b_16:V2"),
        (model("torchvision/vit_b_16", tag="random, seed 0"), {}, "vit_b_16@random"),
        (model("my.module:load"), {}, "--model my.module:load"),
        (model("hf/google/vit"), ON_DISK_DATA, "--root DATA --model hf/google/vit"),
    ],
)
def test_models_and_data_on_disk_are_in_the_command(model, data, words, report):
    data = data or {"name": "glyphs"}
    assert words in repeat(card_of(report, model=model, data=data, batch_size=64)).text


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"options": {"lr": 0.1, "output": "7"}}, "option output was '7', which cannot be written"),
        ({"model": model("timm/vit", tag="file", sha256="ab12")}, "SHA-256 ab12"),
        ({"data": ON_DISK_DATA}, "DATA is the folder of the images"),
        (
            {"shard": ShardCard(pieces=3, kind="consecutive", number=2, images={})},
            "this makes all 3 pieces; this run is number 3",
        ),
        ({"options": {"layers": [1, 2]}}, "option layers was [1, 2], which cannot be written"),
        ({"options": {"output": "two words"}}, "option output was 'two words', which cannot"),
        ({"data": ON_DISK_DATA, "source_images": "ab"}, "add --source-images with the folder"),
        ({"data": ON_DISK_DATA | {"name": "imagenet-c"}}, "or the data set's image_list if"),
    ],
)
def test_what_a_card_does_not_say_is_said(change, note, report):
    assert any(note in found for found in repeat(card_of(report, **change)).notes)


def test_domains_of_another_kind_are_named(report):
    notes = repeat(card_of(report, data={"domains": ("fog", "sketch")})).notes
    assert "the domains sketch are not built-in corruptions" in notes
    assert "leave out --samples if tiny has exactly 105 images" in notes


# Colors


def linear(color: str) -> np.ndarray:
    values = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# Machado et al. (2009), full severity, for linear RGB.
SIGHTS = {
    "usual": np.eye(3),
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]] @ rgb
    t = xyz / [0.9505, 1, 1.089]
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_methods_are_told_apart_by_every_sight(sight, ground):
    seen = {
        color: lab(np.clip(SIGHTS[sight] @ linear(getattr(color, ground)), 0, 1))
        for color in (SOURCE, *COLORS)
    }
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 9, (a, b)


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_colors_stand_out_from_the_background(ground):
    behind = getattr(BACKGROUND, ground)
    for color in (SOURCE, *COLORS):
        assert contrast(getattr(color, ground), behind) >= 3, color
    assert contrast(getattr(WORSE, ground), behind) >= 4.5


def test_a_built_in_method_has_the_same_color_in_every_report():
    everything = styles(dab.methods())
    assert everything["source"].light == SOURCE.light
    for few in itertools.combinations(["source", "tent", "rotta", "note", "dab"], 3):
        found = styles([*few, "mine", "yours"])
        assert len({style.light for style in found.values()}) == 5
        for name in few:
            assert found[name] == styles([name])[name]


def test_built_in_methods_declare_colors_of_their_own():
    declared = [vars(dab.method(name)).get("color") for name in dab.methods()]
    colors = [color for color in declared if color is not None]
    assert len(set(colors)) == len(colors)
    assert dab.method("source").color == 0


def test_more_methods_than_colors_differ_in_shape():
    found = styles([*dab.methods(), *(f"mine {n}" for n in range(10))])
    looks = [(style.light, style.shape % 6) for style in found.values()]
    assert found["dab"].light != SOURCE.light
    assert len(set(looks)) == len(looks)


def test_no_name_of_a_method_is_in_the_page_or_its_code():
    """The report reads what it says about a method from the method's class."""
    folder = Path(figures.__file__).parent
    names = {name for name in dab.methods() if name not in ("source", "norm", "note", "dab")}
    words = "|".join(sorted(names | {"['\"]dab['\"]", "['\"]note['\"]", "['\"]source['\"]"}))
    for file in [
        *folder.glob("*.py"),
        *folder.glob("template/*.js"),
        *folder.glob("template/*.h*"),
    ]:
        text = re.sub(r"(?m)^ *(>>>|\.\.\.|['\[(]).*$", "", file.read_text())  # not doctests
        assert not re.search(rf"\b({words})\b", text), file.name


# The output correction


def test_corrections_are_those_of_the_trace(tmp_path, monkeypatch):
    runs = make_corrected(tmp_path)
    found = gather(runs)
    assert found.corrections_left_out == 0
    views = {found.row(panel.row).label.options: panel for panel in found.corrections}
    assert views.keys() == {"output=markov", "output=batch_prior"}
    assert views["output=batch_prior"].view.shares is None
    panel = views["output=markov"]
    trace = read_trace(runs / panel.run)
    (span,) = panel.view.spans
    rows = zip(range(len(span.labels)), span.labels, span.before, span.after, strict=True)
    assert [list(row) for row in rows] == trace["spans"].tolist()
    wrong = [label != answer for label, answer in zip(span.labels, span.before, strict=True)]
    assert span.error_before == pytest.approx(100 * np.mean(wrong))
    shares = panel.view.shares
    assert np.allclose(np.sum(shares.values, axis=0), 100, atol=0.3)
    assert shares.names == tuple(trace["share_names"])
    drawn = {file.stem for file in draw(found, tmp_path / "figures")}
    for name in ("markov", "batch-prior"):
        assert f"tiny-correlated-correction-source-output-{name}" in drawn
    monkeypatch.setattr(assembling, "ROOM_FOR_CORRECTIONS", 10)
    assert (gather(runs).corrections, gather(runs).corrections_left_out) == ((), 2)


def test_runs_without_a_correction_have_no_view(report):
    assert report.corrections == ()


# Figures and tables for a paper


def test_figures_are_written_as_svg_and_pdf(report, tmp_path):
    row = rows_of(report, "correlated")["dab", 16]
    buffers = tuple(buffer for buffer in report.buffers if buffer.row == row.id)
    written = draw(replace(report, streams=report.streams[1:], buffers=buffers), tmp_path)
    names = {file.name for file in written}
    assert {file.name for file in tmp_path.iterdir()} == names
    for kind in ("stream", "domains", "sizes", "cost", "buffer-dab-m-16"):
        assert {f"tiny-correlated-{kind}.{suffix}" for suffix in ("svg", "pdf")} <= names
    for file in written:
        if file.suffix == ".svg":
            text = " ".join(ET.parse(file).getroot().itertext())
            assert text.strip()
        else:
            assert file.read_bytes().startswith(b"%PDF")
    text = (tmp_path / "tiny-correlated-stream.svg").read_text()
    assert all(label in text for label in ("Source", "TENT", "DAB M=16", "images seen"))
    assert report.styles["dab"].light in text


def test_a_figure_has_the_same_bytes_again_and_one_size_is_not_a_line(report, tmp_path):
    report = replace(report, streams=report.streams[:1], buffers=())
    for folder in ("once", "again"):
        kinds = ("stream", "domains", "cost")
        expected = {f"tiny-continual-{kind}.{end}" for kind in kinds for end in ("svg", "pdf")}
        assert {file.name for file in draw(report, tmp_path / folder)} == expected
    for file in (tmp_path / "once").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_a_mean_stays_within_its_domain():
    assert smooth([0, 0, 0, 9, 9, 9], 10, [30, 60]) == [0, 0, 0, 9, 9, 9]
    assert smooth([0, 3, 6, 9, 9, 0], 10, None) == [1.5, 3, 6, 8, 6, 4.5]


def test_the_heat_map_has_the_colors_of_the_page(report):
    page = render(report)
    for name, sign in (("better", -1), ("worse", 1)):
        color = np.array(re.search(rf"--{name}-rgb: ([\d ]+);", page).group(1).split(), float)
        for difference in (5.0, 25.0, 60.0):
            strength = min(1, difference / 25) * 0.5
            expected = 1 - strength + strength * color / 255
            assert tints(np.array([[sign * difference]]))[0, 0] == pytest.approx(expected)
    assert tints(np.array([[0.0]])).tolist() == [[[1, 1, 1]]]


def test_names_in_the_figure_of_costs_cover_nothing(report):
    stream = stream_in(report, "correlated")
    near = [
        replace(row, scores=replace(row.scores, cost=3 + n / 50, error=40 + n / 9))
        for n, row in enumerate(stream.rows)
    ]
    chart = replace(stream.cost, rows=tuple(row.id for row in near), most=4, low=35, high=45)
    figure = figures._cost(report, replace(stream, rows=tuple(near), cost=chart))
    renderer = FigureCanvasAgg(figure).get_renderer()
    (axes,) = figure.axes
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    points = axes.transData.transform([(row.scores.cost, row.scores.error) for row in near])
    assert [text.get_text() for text in axes.texts] == [row.label.short for row in near]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert not any(box.contains(*point) for box in boxes for point in points)


def test_latex_has_the_numbers_of_the_rows(report):
    text = tables(report)
    assert text.count("{") == text.count("}")
    blocks = re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tabular\}", text, re.S)
    assert len(blocks) == 2
    captions = re.findall(r"\\caption\{(.*?)\}\n", text)
    assert "from a single seed" in captions[0]
    assert "\\pm" not in captions[0]
    assert r"mean $\pm$ standard deviation over 2 seeds" in captions[1]
    columns, body = blocks[1]
    lines = [line.removesuffix(" \\\\") for line in body.splitlines() if line.endswith("\\\\")]
    assert lines[0] == "Method & $M$ & tiny"
    assert len(lines) == 7
    assert all(line.count("&") == len(columns) - 1 for line in lines)
    for line, row in zip(lines[1:], rows_of(report, "correlated").values(), strict=True):
        assert f"{row.scores.error:.1f}" in line
        assert rf"\pm$\,{row.scores.deviation:.1f}" in line
        assert (r"\textcolor{red}" in line) == row.scores.worse
        assert (r"\textbf" in line) == (row.scores.rank == 1)
    assert lines[2].startswith(r"TENT {\footnotesize lr=0.3} &  & \textcolor{red}")
    assert r"update\_every=16" in lines[3]


def test_a_guarded_run_shows_what_its_guard_estimated(tmp_path):
    cell = replace(tiny_cell("tent"), options={"lr": 0.3, "guard": True})
    result = run(cell, tiny_task(), tmp_path / "runs", cache=tmp_path / "cache")
    assert result.guard is not None
    assert len(result.guard.estimates) == len(result.windows)
    assert all(0 <= estimate <= 100 for estimate in result.guard.estimates)
    (stream,) = gather(tmp_path / "runs").streams
    (row,) = stream.rows
    assert row.guard.rollbacks == result.guard.rollbacks
    assert len(row.guard.estimates) == len(result.windows)
