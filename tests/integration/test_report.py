"""Reports: what is gathered from a folder of runs, against its files read by hand."""

from __future__ import annotations

import base64
import io
import itertools
import json
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

from dab.benchmark import Cell, TaskRecipe
from dab.benchmark.compute import Compute
from dab.benchmark.results.result import key, results
from dab.benchmark.results.summary import summarize
from dab.benchmark.running.run import identity_card, stream_of
from dab.cli import bench, main
from dab.data.corruptions import HELD_OUT
from dab.report import data as report_data
from dab.report import figures, gather, render
from dab.report.buffer_view import inside, read_trace
from dab.report.figures import draw, smooth, tints
from dab.report.latex import tables
from dab.report.palette import _METHODS, BACKGROUND, WORSE, colors
from dab.report.reproduce import ALL, repeat
from dab.streams import Setting, Shard
from dab.utils import files
from tests.support.benchmark_task import CORRUPTIONS, tiny_task
from tests.support.report_runs import make_pieces, make_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def data(runs: Path) -> dict:
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


def rows_of(data: dict, setting: str) -> dict:
    (stream,) = [stream for stream in data["streams"] if stream["setting"] == setting]
    return {(row["method"], row["capacity"]): row for row in stream["rows"]}


# What is gathered

LINES = [("source", None), ("tent", None), ("rotta", 16), ("note", 16), ("dab", 8), ("dab", 16)]


def test_rows_have_the_figures_of_the_files(runs, data):
    expected, found = by_hand(runs, "correlated"), rows_of(data, "correlated")
    assert list(found) == LINES
    best = min(sum(r["error"] for r in seeds.values()) / 2 for seeds in expected.values())
    unit = min(result["seconds"] for result in expected["source", None].values())
    for name, row in found.items():
        seeds = expected[name]
        errors = [seeds[0]["error"], seeds[1]["error"]]
        assert row["seeds"] == [0, 1]
        assert row["error"] == pytest.approx(statistics.mean(errors))
        assert row["deviation"] == pytest.approx(statistics.stdev(errors))
        assert row["best"] == (row["error"] == pytest.approx(best))
        source = statistics.mean(r["error"] for r in expected["source", None].values())
        assert row["worse"] == (round(row["error"], 1) > round(source, 1))
        assert row["cost"] == pytest.approx(
            min(result["seconds"] for result in seeds.values()) / unit, abs=1e-3
        )
        pairs = zip(seeds[0]["windows"], seeds[1]["windows"], strict=True)
        assert row["windows"] == pytest.approx([sum(pair) / 2 for pair in pairs], abs=0.01)
        assert row["runs"] == [seeds[0]["folder"], seeds[1]["folder"]]
    assert found["tent", None]["worse"]
    assert found["source", None]["cost"] == 1


def test_a_stream_says_where_its_domains_end(data):
    for stream in data["streams"]:
        assert stream["ends"] == [70, 140, 210]
        assert stream["domains"] == list(CORRUPTIONS)
        assert stream["detail"].startswith("3 domains, 70 images each, severity 5, batches of 16")


def test_runs_of_before_have_domains_of_one_size(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "old")
    for file in (tmp_path / "old").glob("*/trace.npz"):
        with np.load(file) as trace:
            kept = {name: trace[name] for name in ("fill", "samples", "admitted", "updated")}
        np.savez(file, **kept)
    old = gather(tmp_path / "old")
    assert old["streams"][0]["ends"] == [70, 140, 210]
    assert old["insides"]
    assert not any("look_at" in inside for inside in old["insides"].values())
    render(old)


def test_other_streams_are_not_compared_with_each_other(data):
    assert [stream["title"] for stream in data["streams"]] == [
        "tiny, continual",
        "tiny, correlated",
    ]
    assert [table["setting"] for table in data["tables"]] == ["continual", "correlated"]
    assert list(rows_of(data, "continual")) == [("source", None), ("dab", 16)]


def test_tables_have_a_line_for_each_method_and_size(data):
    table = data["tables"][1]
    lines = [(line["method"], line["capacity"]) for line in table["lines"]]
    assert lines == LINES
    ids = {row["id"] for row in rows_of(data, "correlated").values()}
    assert {id for line in table["lines"] for id in line["rows"].values()} == ids


def test_two_streams_of_the_same_data_are_told_apart(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "two")
    for file in (tmp_path / "two").glob("*/result.json"):
        result = json.loads(file.read_text())
        result["card"]["batch_size"] = 99
        (file.parent.parent / f"{file.parent.name}b").mkdir()
        (file.parent.parent / f"{file.parent.name}b" / "result.json").write_text(json.dumps(result))
    table = gather(tmp_path / "two")["tables"][1]
    assert [column["title"] for column in table["columns"]] == ["tiny", "tiny"]
    details = {re.search(r"batches of \d+", c["detail"]).group() for c in table["columns"]}
    assert details == {"batches of 16", "batches of 99"}


def test_labels_say_what_tells_rows_apart(data):
    labels = [row["label"] for row in rows_of(data, "correlated").values()]
    assert labels == ["source", "tent", "rotta M=16", "note M=16", "dab M=8", "dab M=16"]
    assert [row["variant"] for row in rows_of(data, "correlated").values()] == [0, 0, 0, 0, 0, 1]


def variants(out: Path, method: str, *changes: dict) -> None:
    """Beside each run of a method, others whose cards differ as given."""
    for file in list(out.glob("*/result.json")):
        result = json.loads(file.read_text())
        if result["card"]["method"] == method:
            for change in changes:
                card = {**result["card"], **change}
                files.write(out / key(card) / "result.json", json.dumps({**result, "card": card}))


def test_rows_that_differ_in_anything_else_are_told_apart(runs, tmp_path):
    out = tmp_path / "runs"
    shutil.copytree(runs, out)
    half = {"device": "cpu", "precision": "bf16", "compile": False, "threads": 1}
    variants(out, "tent", {"code": "abcd1"}, {"code": "abcd2"}, {"source_images": "f00d"})
    variants(out, "note", {"compute": half})
    variants(out, "source", {"published_as": "nothing"})
    found = gather(out)
    labels = [row["label"] for row in rows_of_all(found, "correlated")]
    assert len(set(labels)) == len(labels) == 6 + 5
    assert {"note M=16 (bf16)", "note M=16 (fp32)", "dab M=8", "dab M=16"} <= set(labels)
    tents = [label for label in labels if label.startswith("tent")]
    assert sum("(code abcd1, source images null)" in label for label in tents) == 1
    assert sum("source images f00d)" in label for label in tents) == 1
    table = found["tables"][1]
    assert len(table["lines"]) == len(labels)
    assert {id for line in table["lines"] for id in line["rows"].values()} == {
        row["id"] for row in rows_of_all(found, "correlated")
    }
    text = tables(found)
    assert text.count("bf16") == 1
    assert len(re.findall("code abcd[12]", text)) == 2
    only_note = [row for row in rows_of_all(found, "correlated") if row["method"] == "note"]
    stream = {**found["streams"][1], "rows": only_note}
    written = draw({**found, "streams": [stream], "insides": {}}, tmp_path / "figures")
    assert "note M=16 (bf16)" in next(f for f in written if f.suffix == ".svg").read_text()


def rows_of_all(data: dict, setting: str) -> list[dict]:
    (stream,) = [stream for stream in data["streams"] if stream["setting"] == setting]
    return stream["rows"]


def test_options_may_be_lists_and_sentences(runs, tmp_path):
    out = tmp_path / "runs"
    shutil.copytree(runs, out)
    variants(out, "tent", *({"options": {"layers": v}} for v in ([1, 2], [3], "all of them")))
    found = gather(out)
    labels = {row["label"] for row in rows_of_all(found, "correlated")}
    assert {"tent layers=[1, 2]", "tent layers=[3]", "tent layers=all of them"} <= labels
    render(found)
    tables(found)


def test_buffers_are_in_the_order_of_their_sizes(runs, tmp_path):
    out = tmp_path / "runs"
    shutil.copytree(runs, out)
    sizes = ({"options": {"capacity": size, "update_every": size}} for size in (256, 1024, 64))
    variants(out, "note", *sizes)
    found = gather(out)
    notes = [line for line in found["tables"][1]["lines"] if line["method"] == "note"]
    assert [line["capacity"] for line in notes] == [16, 64, 256, 1024]
    # An update after as many samples as the buffer holds goes with its size, and is one line.
    rows = [row for row in rows_of_all(found, "correlated") if row["method"] == "note"]
    labels = ["note M=16 lr=0.05", "note M=64", "note M=256", "note M=1024"]
    assert [row["label"] for row in rows] == labels
    assert [row["line"] for row in rows] == ["note lr=0.05", "note", "note", "note"]
    variants(out, "note", {"options": {"capacity": 64, "update_every": 8}})
    rows = [row for row in rows_of_all(gather(out), "correlated") if row["method"] == "note"]
    labels = {"note M=64", "note M=64 update_every=8", "note M=256 update_every=256"}
    assert labels < {row["label"] for row in rows}  # 64 is the default


def test_published_figures_stand_beside(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "as imagenet")
    for file in (tmp_path / "as imagenet").glob("*/result.json"):
        result = json.loads(file.read_text())
        result["card"]["published_as"] = "imagenet_c"
        file.write_text(json.dumps(result))
    found = gather(tmp_path / "as imagenet")
    assert rows_of(found, "correlated")["tent", None]["published"] == [80.6, "paper"]
    assert rows_of(found, "correlated")["dab", 16]["published"] is None
    assert found["tables"][1]["columns"][0]["published"]
    assert "80.6 " in tables(found)
    assert "*" not in tables(found)


def test_figures_that_are_not_from_the_paper_are_starred_in_latex_too(data):
    rows = [{**row, "published": [12.3, "benchmark"]} for row in data["streams"][1]["rows"]]
    table = data["tables"][1]
    columns = [{**column, "published": True} for column in table["columns"]]
    starred = tables({"streams": [{"rows": rows}], "tables": [{**table, "columns": columns}]})
    assert starred.count("12.3*") == len(rows)
    assert "*: not in the paper, from its authors' benchmark.}" in starred


def test_a_method_that_is_not_known_here_is_shown_too(runs, tmp_path):
    shutil.copytree(runs, tmp_path / "mine")
    for file in (tmp_path / "mine").glob("*/result.json"):
        file.write_text(file.read_text().replace('"method": "tent"', '"method": "mine"'))
    found = gather(tmp_path / "mine")
    row = rows_of(found, "correlated")["mine", None]
    assert "lr=0.3" in row["name"]
    (note,) = [note for note in found["runs"][row["runs"][0]]["notes"] if "mine" in note]
    assert note == "mine is not built in: add --import with the file that it is in"


def test_runs_under_way_are_shown_as_far_as_they_are(runs, tmp_path):
    out = tmp_path / "half"
    shutil.copytree(runs, out)
    finished = by_hand(runs, "correlated")
    for method, seed in ((("note", 16), 0), (("note", 16), 1), (("rotta", 16), 0)):
        folder = out / finished[method][seed]["folder"]
        result = json.loads((folder / "result.json").read_text())
        progress = {"card": result["card"], "seen": 96, "samples": 210, "window": 16, "time": 5.0}
        progress["windows"] = result["windows"][:6]
        (folder / "progress.json").write_text(json.dumps(progress))
        (folder / "result.json").unlink()
    found = rows_of(gather(out), "correlated")
    assert "error" not in found["note", 16]
    assert found["note", 16]["underway"] == 2
    assert len(found["note", 16]["windows"]) == 6
    assert found["rotta", 16]["seeds"] == [1]
    assert found["rotta", 16]["underway"] == 1
    assert len(found["rotta", 16]["windows"]) == 14
    assert finished["rotta", 16][1]["folder"] in gather(out)["insides"]
    one = gather(out)["runs"][finished["note", 16][0]["folder"]]
    assert (one["seen"], one["samples"], one["time"]) == (96, 210, 5.0)
    assert "error" not in one
    assert render(gather(out))


def test_a_folder_without_runs_is_named(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path} has no runs: " in capsys.readouterr().err


def test_a_damaged_trace_is_named(runs, tmp_path, capsys):
    shutil.copytree(runs, tmp_path / "bad")
    for file in (tmp_path / "bad").glob("*/trace.npz"):
        file.write_bytes(b"PK\x03\x04 no archive")
    assert main(["report", str(tmp_path / "bad")]) == 2
    assert re.search(r"trace\.npz is damaged \(.*\): remove it", capsys.readouterr().err)


RESULT_DAMAGE = {
    "no card": (lambda result: result.update(card={}), "its card has no usable method"),
    "no options": (lambda result: result["card"].pop("options"), "no usable options"),
    "no domains": (lambda result: result["card"]["data"].update(domains=[]), "has no domains"),
    "no model": (lambda result: result["card"].update(model=None), "no usable model.name"),
    "no setting": (lambda result: result["card"].update(setting="backwards"), "backwards"),
    "no piece": (lambda result: result["card"].update(shard={"number": 0}), "no usable shard.pie"),
    "no number": (lambda result: result.update(error=float("nan")), "NaN is no figure"),
}


@pytest.mark.parametrize("damage", RESULT_DAMAGE)
@pytest.mark.parametrize("name", ["result.json", "progress.json"])
def test_damaged_results_are_named(damage, name, runs, tmp_path, capsys):
    change, reason = RESULT_DAMAGE[damage]
    source = next(runs.glob("*/result.json"))
    result = json.loads(source.read_text())
    if name == "progress.json":
        progress = {"seen": 96, "samples": 210, "window": 16, "windows": [], "time": 5.0}
        result = {"card": result["card"], **progress}
    change(result)
    file = tmp_path / "bad" / name
    file.parent.mkdir()
    file.write_text(json.dumps(result))
    assert main(["report", str(tmp_path)]) == 2
    assert re.search(rf"{file} is damaged \(.*{re.escape(reason)}", capsys.readouterr().err)


# Streams that were dealt out


@pytest.fixture(scope="module")
def dealt_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pieces(tmp_path_factory.mktemp("pieces"))


def test_pieces_are_reported_together(dealt_out):
    found = gather(dealt_out)
    (stream,) = found["streams"]
    assert stream["title"] == "tiny, correlated, 4 interleaved pieces"
    assert stream["detail"].startswith("3 domains, 210 images, severity 5")
    expected = sorted(summarize(results(dealt_out)), key=lambda row: row.method == "dab")
    rows = {row["method"]: row for row in stream["rows"]}
    assert [(row["method"], row["error"], row["seeds"]) for row in stream["rows"]] == [
        (row.method, row.error, list(row.seeds)) for row in expected
    ]
    assert len(rows["dab"]["runs"]) == 8
    assert rows["dab"]["errors"] == expected[1].errors
    assert rows["dab"]["cost"] > 0
    (table,) = found["tables"]
    assert [line["method"] for line in table["lines"]] == ["source", "dab"]
    assert len(found["runs"]) == 16
    titles = [one["title"] for one in found["runs"].values()]
    assert len(set(titles)) == 16
    assert found["runs"][rows["dab"]["runs"][1]]["title"].endswith("interleaved piece 2 of 4")
    assert all("--samples 70 " in one["command"] for one in found["runs"].values())
    render(found)


def test_pieces_are_under_way_until_all_have_ended(dealt_out, tmp_path):
    shutil.copytree(dealt_out, tmp_path / "runs")
    (row,) = [row for row in gather(dealt_out)["streams"][0]["rows"] if row["method"] == "dab"]
    (tmp_path / "runs" / row["runs"][2] / "result.json").unlink()
    found = gather(tmp_path / "runs")
    (half,) = [row for row in found["streams"][0]["rows"] if row["method"] == "dab"]
    assert (half["id"], half["seeds"], half["underway"]) == (row["id"], [1], 1)
    assert half["runs"][:4] == row["runs"][4:]
    render(found)


# Inside the buffer


def picture(uri: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


def test_insides_are_those_of_the_trace(runs, data):
    row = rows_of(data, "correlated")["dab", 16]
    found = data["insides"][row["runs"][0]]
    trace = read_trace(runs / row["runs"][0])
    assert found["row"] == row["id"]
    assert (trace["buffer_classes"] == picture(found["buffer_classes"]).T).all()
    assert (trace["batch_classes"] == picture(found["batch_classes"]).T).all()
    assert found["ages"] == trace["buffer_ages"].tolist()
    for counts, balance in zip(trace["buffer_classes"], found["buffer_balance"], strict=True):
        p = [count / sum(counts) for count in counts if count]
        assert balance == pytest.approx(np.exp(-sum(x * np.log(x) for x in p)), abs=0.006)
    assert found["fill"] == trace["fill"].tolist()  # as few calls as windows
    assert found["admitted"] == pytest.approx(trace["admitted"] / trace["samples"], abs=1e-3)
    assert found["at"][-1] == 210
    for number, shot in enumerate(found["shots"]):
        labels = trace["buffer_labels"][number]
        assert shot["buffer"]["labels"] == labels[labels >= 0].tolist()
        sheet = picture(shot["buffer"]["sheet"])
        height, width = trace["buffer_images"].shape[2:4]
        assert sheet.shape == (-(-len(labels[labels >= 0]) // 8) * height, 8 * width, 3)
        second = sheet[:height, width : 2 * width].astype(int)
        expected = trace["buffer_images"][number, 1]
        assert abs(second - expected).mean() < 40  # a lossy picture of the right item


def test_methods_without_a_buffer_have_no_inside(runs, data):
    for name in data["insides"]:
        card = json.loads((runs / name / "result.json").read_text())["card"]
        assert card["method"] in ("dab", "note", "rotta")
        assert card["seed"] == 0  # one is enough
    assert len(data["insides"]) == 5
    assert inside({}) is None


def test_what_there_is_no_room_for_is_counted(runs, monkeypatch):
    sizes = [len(json.dumps(i)) for i in gather(runs)["insides"].values()]
    monkeypatch.setattr(report_data, "INSIDES", sizes[0] + 1)
    few = gather(runs)
    assert len(few["insides"]) == 1
    assert few["insides_left_out"] == 4


# The page


def test_the_page_needs_nothing_besides(data):
    page = render(data)
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)[^\"']*", page)
    addresses = set(re.findall(r"https?://[^\"' )]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches
    assert "@import" not in page
    assert "connect-src 'none'" in page


def test_nothing_in_the_data_can_break_out_of_the_page(runs, tmp_path):
    evil = "</script><script>alert(1)</script>"
    out = tmp_path / "runs"
    shutil.copytree(runs, out)
    model = {"name": evil, "weights": evil}
    data = {"name": evil, "samples": 210, "domains": [*CORRUPTIONS], "severity": 5}
    variants(out, "tent", {"method": evil}, {"options": {evil: evil}}, {"code": evil})
    variants(out, "source", {"model": model}, {"data": data}, {evil: evil})
    found = {**gather(out), "title": evil}
    assert evil in found["palette"]
    assert any(evil in stream["detail"] for stream in found["streams"])
    assert any(evil in row["label"] for stream in found["streams"] for row in stream["rows"])
    page = render(found)
    assert evil not in page
    embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(embedded.group(1)) == found


def test_five_hundred_runs_stay_below_five_megabytes(runs, tmp_path):
    result = json.loads(next(runs.glob("*/result.json")).read_text())
    result["windows"] = [12.345678] * 150
    trace = next(f for f in runs.glob("*/trace.npz") if "look_at" in np.load(f))
    for number in range(500):
        card = json.loads(json.dumps(result["card"]))
        card |= {"method": "dab", "seed": number % 5, "source_error": 50.0}
        card["options"] = {"capacity": 16 + number // 5}
        folder = tmp_path / key(card)
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({**result, "card": card}))
        shutil.copy(trace, folder)
    found = gather(tmp_path)
    assert len(found["runs"]) == 500
    assert len(found["streams"][0]["rows"]) == 100
    assert len(found["insides"]) + found["insides_left_out"] == 100
    assert len(render(found).encode()) < 5_000_000


def test_the_command_writes_it_all(runs, tmp_path, capsys):
    out = tmp_path / "runs"
    for name in rows_of(gather(runs), "continual")["source", None]["runs"]:
        shutil.copytree(runs / name, out / name)
    arguments = ["--figures", str(tmp_path / "figures"), "--latex", str(tmp_path / "t.tex")]
    assert main(["report", str(out), *arguments]) == 0
    assert f"The report is {out / 'report.html'}" in capsys.readouterr().out
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
        ("--out", file / "page.html"): f"--out needs a folder, and {file} is a file",
        ("--out", page, "--latex", folder): f"--latex {folder} is a folder: name a file",
        ("--out", page, "--figures", file): f"--figures needs a folder, and {file} is a file",
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


@pytest.mark.parametrize("samples", [20, None])
@pytest.mark.parametrize("name", CELLS)
def test_the_command_of_a_card_makes_the_same_card(name, samples, monkeypatch, tmp_path):
    monkeypatch.setitem(ALL, "glyphs", 70)
    cell, task = CELLS[name], glyphs_like(samples)
    card = identity_card(cell, task, stream_of(cell, task, tmp_path), 12.5)
    command = repeat(card)
    assert command.notes == []
    caught = {}
    monkeypatch.setattr(bench, "execute", lambda chosen, domains: caught.update(c=chosen) or 0)
    assert main(command.text.split()[1:]) == 0
    again = bench.cells(caught["c"])[-1]
    same = glyphs_like(caught["c"].samples)
    assert identity_card(again, same, stream_of(again, same, tmp_path), 12.5) == card


@pytest.mark.parametrize("text", ["4", "4:consecutive", "2"])
@pytest.mark.parametrize("setting", ["correlated", "mixed"])
def test_the_command_of_a_piece_makes_all_of_them(text, setting, monkeypatch, tmp_path):
    monkeypatch.setitem(ALL, "glyphs", 70)
    cell, task = (
        Cell("dab", {"capacity": 8}, setting=Setting.parse(setting), seed=3),
        glyphs_like(7),
    )
    cell = replace(cell, corruptions=("fog", "snow", "contrast"))

    def cards(cells: list[Cell], task: object) -> list[dict]:
        return [identity_card(one, task, stream_of(one, task, tmp_path), 9.5) for one in cells]

    pieces = cards([replace(cell, shard=shard) for shard in Shard.parse(text)], task)
    caught = {}
    monkeypatch.setattr(bench, "execute", lambda chosen, domains: caught.update(c=chosen) or 0)
    for card in pieces:
        command = repeat(card)
        assert main(shlex.split(command.text)[1:]) == 0
        again = [one for one in bench.cells(caught["c"]) if one.method == "dab"]
        if len(command.notes) == 1:  # one number of images alone has such a piece
            assert cards(again, glyphs_like(caught["c"].samples)) == pieces
        else:
            assert re.search(r"--samples may have been .*7|--samples 7 ", str(command))
    assert text == "4" or len(command.notes) == 1


def test_data_sets_are_as_large_as_the_command_believes():
    assert len(TaskRecipe("glyphs").create().data.images) == ALL["glyphs"]


ON_DISK_DATA = {"name": "imagenet-r", "samples": 9, "domains": ["imagenet-r"], "severity": 5}


@pytest.mark.parametrize(
    ("model", "data", "words"),
    [
        ({"name": "timm/vit", "tag": "augreg"}, None, "--model timm/vit.augreg"),
        ({"name": "torchvision/vit_b_16", "tag": "V2"}, None, "--model torchvision/vit_b_16:V2"),
        ({"name": "torchvision/vit_b_16", "tag": "random, seed 0"}, None, "vit_b_16@random"),
        ({"name": "my.module:load"}, None, "--model my.module:load"),
        ({"name": "hf/google/vit"}, ON_DISK_DATA, "--root DATA --model hf/google/vit"),
    ],
)
def test_models_and_data_on_disk_are_in_the_command(model, data, words, tmp_path):
    cell, task = CELLS["plain"], glyphs_like(None)
    card = identity_card(cell, task, stream_of(cell, task, tmp_path), 12.5)
    assert words in repeat({**card, "model": model, "data": data or card["data"]}).text


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"options": {"lr": 0.1, "output": "7"}}, "option output was '7', which cannot be written"),
        ({"model": {"name": "timm/vit", "tag": "file", "sha256": "ab12"}}, "SHA-256 ab12"),
        ({"data": ON_DISK_DATA}, "DATA is the folder of the images"),
        (
            {"shard": {"number": 2, "pieces": 3, "kind": "consecutive"}},
            "this makes all 3 pieces; this one is number 3",
        ),
        ({"options": {"layers": [1, 2]}}, "option layers was [1, 2], which cannot be written"),
        ({"options": {"output": "two words"}}, "option output was 'two words', which cannot"),
        ({"compute": {"device": "cpu", "engine": "x"}}, "compute.engine was 'x'"),
        ({"data": ON_DISK_DATA, "source_images": "ab"}, "add --source-images with the folder"),
        ({"data": ON_DISK_DATA | {"name": "imagenet-c"}}, "or --image-list if that was given"),
        ({"engine": "steam"}, "engine was 'steam'"),
    ],
)
def test_what_a_card_does_not_say_is_said(change, note, data):
    card = {**next(iter(data["runs"].values()))["card"], **change}
    assert any(note in found for found in repeat(card).notes)


def test_domains_of_another_kind_are_named(data):
    card = next(iter(data["runs"].values()))["card"]
    card = {**card, "data": {**card["data"], "domains": ["fog", "sketch"]}}
    notes = repeat(card).notes
    assert "the domains sketch are no corruptions that are built in" in notes
    assert "leave out --samples if tiny has just 105 images" in notes


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
        name: lab(np.clip(SIGHTS[sight] @ linear(getattr(color, ground)), 0, 1))
        for name, color in _METHODS.items()
    }
    main_ones = {"source", "tent", "rotta", "note", "dab"}
    for a, b in itertools.combinations(seen, 2):
        least = 20 if {a, b} <= main_ones else 9
        assert np.linalg.norm(seen[a] - seen[b]) > least, (a, b)


@pytest.mark.parametrize("ground", ["light", "dark"])
def test_colors_stand_out_from_the_ground(ground):
    behind = getattr(BACKGROUND, ground)
    for name, color in _METHODS.items():
        assert contrast(getattr(color, ground), behind) >= 3, name
    assert contrast(getattr(WORSE, ground), behind) >= 4.5


def test_a_method_of_ones_own_gets_a_color_nobody_has():
    found = colors(["source", "dab", "tent", "mine", "yours"])
    assert len(set(found.values())) == 5
    assert found["dab"] == colors(["dab"])["dab"]
    assert len(colors([*_METHODS, "mine"])) == len(_METHODS) + 1


# Figures and tables for a paper


def test_figures_are_written_as_svg_and_pdf(data, tmp_path):
    dab = rows_of(data, "correlated")["dab", 16]["runs"][0]
    data = {**data, "streams": data["streams"][1:], "insides": {dab: data["insides"][dab]}}
    written = draw(data, tmp_path)
    names = {file.name for file in written}
    assert {file.name for file in tmp_path.iterdir()} == names
    for kind in ("stream", "domains", "sizes", "cost", "inside-dab-m-16"):
        assert {f"tiny-correlated-{kind}.{suffix}" for suffix in ("svg", "pdf")} <= names
    for file in written:
        if file.suffix == ".svg":
            text = " ".join(ET.parse(file).getroot().itertext())
            assert text.strip()
        else:
            assert file.read_bytes().startswith(b"%PDF")
    text = (tmp_path / "tiny-correlated-stream.svg").read_text()
    assert all(label in text for label in ("source", "tent", "dab M=16", "images seen"))
    assert data["palette"]["dab"]["light"] in text


def test_a_figure_has_the_same_bytes_again_and_one_size_is_no_line(data, tmp_path):
    data = {**data, "streams": data["streams"][:1], "insides": {}}
    for folder in ("once", "again"):
        kinds = ("stream", "domains", "cost")
        expected = {f"tiny-continual-{kind}.{end}" for kind in kinds for end in ("svg", "pdf")}
        assert {file.name for file in draw(data, tmp_path / folder)} == expected
    for file in (tmp_path / "once").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_a_mean_stays_within_its_domain():
    stream = {"window": 10, "ends": [30, 60], "samples": 60}
    assert smooth([0, 0, 0, 9, 9, 9], stream) == [0, 0, 0, 9, 9, 9]
    assert smooth([0, 3, 6, 9, 9, 0], {**stream, "ends": None}) == [1.5, 3, 6, 8, 6, 4.5]


def test_the_heat_map_has_the_colors_of_the_page(data):
    page = render(data)
    for name, sign in (("better", -1), ("worse", 1)):
        color = np.array(re.search(rf"--{name}-rgb: ([\d ]+);", page).group(1).split(), float)
        for difference in (5.0, 25.0, 60.0):
            strength = min(1, difference / 25) * 0.5
            expected = 1 - strength + strength * color / 255
            assert tints(np.array([[sign * difference]]))[0, 0] == pytest.approx(expected)
    assert tints(np.array([[0.0, np.nan]])).tolist() == [[[1, 1, 1], [1, 1, 1]]]


def test_names_in_the_figure_of_costs_cover_nothing(data):
    rows = rows_of_all(data, "correlated")
    near = [{**row, "cost": 3 + n / 50, "error": 40 + n / 9} for n, row in enumerate(rows)]
    figure = figures._cost(data, {"rows": near})
    renderer = FigureCanvasAgg(figure).get_renderer()
    (axes,) = figure.axes
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    points = axes.transData.transform([(row["cost"], row["error"]) for row in near])
    assert [text.get_text() for text in axes.texts] == [row["label"] for row in near]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert not any(box.contains(*point) for box in boxes for point in points)


def test_a_short_rest_of_a_stream_is_no_window_of_its_own():
    calls = 60 * 10 + 3
    trace = {"samples": np.full(calls, 8.0), "fill": np.ones(calls), "admitted": np.zeros(calls)}
    trace["updated"] = np.arange(calls) >= 60 * 10  # in the rest alone
    found = inside(trace)
    assert len(found["at"]) == 60
    assert found["at"][-1] == 8 * calls
    assert found["updated"][-1] == pytest.approx(3 / 13, abs=1e-3)
    longer = inside({name: np.append(values, values[-5:]) for name, values in trace.items()})
    assert len(longer["at"]) == 61


def test_latex_has_the_figures_of_the_rows(data):
    text = tables(data)
    assert text.count("{") == text.count("}")
    blocks = re.findall(r"\\begin\{tabular\}\{(l+r+)\}(.*?)\\end\{tabular\}", text, re.S)
    assert len(blocks) == 2
    columns, body = blocks[1]
    lines = [line.removesuffix(" \\\\") for line in body.splitlines() if line.endswith("\\\\")]
    assert lines[0] == "Method & $M$ & tiny"
    assert len(lines) == 7
    assert all(line.count("&") == len(columns) - 1 for line in lines)
    for line, row in zip(lines[1:], rows_of(data, "correlated").values(), strict=True):
        assert f"{row['error']:.1f}" in line
        assert rf"\pm$\,{row['deviation']:.1f}" in line
        assert (r"\textcolor{red}" in line) == row["worse"]
        assert (r"\textbf" in line) == row["best"]
    assert lines[2].startswith(r"TENT {\footnotesize lr=0.3} &  & \textcolor{red}")
    assert r"update\_every=16" in lines[3]
