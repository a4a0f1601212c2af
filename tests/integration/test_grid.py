"""Grids as values: what they hold, what they refuse, and one call that runs them."""

from __future__ import annotations

import csv
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dab
from dab.benchmark import Compute, Grid, GridResults, Method, results, run_grid, suite
from dab.benchmark.engines import ENGINES
from dab.benchmark.engines.view import View
from dab.benchmark.suites import FACTORS
from dab.benchmark.tasks import TASKS, task_factory
from dab.cli import main
from dab.cli.names import NAMES
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.streams import Setting, Shard
from tests.support.benchmark_task import run, tiny_task
from tests.support.cli import error_of

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.usefixtures("tiny")


def tiny_grid(*methods: str | Method, **changes: Any) -> Grid:
    fields = {"data": ["tiny"], "corruptions": ["contrast", "fog"], "batch_size": 16, **changes}
    return Grid(methods, **fields)


# What a grid holds


def test_the_source_comes_first_in_every_stream_and_once():
    grid = tiny_grid("tent", "source", "dab capacity=8,16", settings=["mixed", Setting()])
    assert [(cell.method, cell.options) for cell in grid.cells()] == [
        ("source", {}),
        ("tent", {}),
        ("dab", {"capacity": 8}),
        ("dab", {"capacity": 16}),
    ] * 2
    assert [cell.method for cell in tiny_grid().cells()] == ["source"]


def test_text_and_values_make_the_same_methods():
    text = tiny_grid("tent lr=0.01", "dab capacity=8,16 lr=0.1")
    values = tiny_grid(
        Method("tent", {"lr": 0.01}), *Method.each("dab", capacity=[8, 16], lr=[0.1])
    )
    assert text.cells() == values.cells()


@pytest.mark.parametrize("method", ["dab capacity=8", Method("dab", {"capacity": 8})])
def test_a_single_method_needs_no_list(method):
    assert Grid(method).cells() == Grid([method]).cells()
    assert Grid({"correlated": method}).cells() == Grid([method]).cells()


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("seeds", [0, 1, 0]),
        ("data", ["tiny", "tiny"]),
        ("settings", ["correlated", Setting("continual", True)]),
    ],
)
def test_repeated_values_are_refused(axis, values):
    with pytest.raises(ValueError, match=f"duplicate value in {axis}: {values[0]}"):
        tiny_grid("tent", **{axis: values})


def test_results_of_another_version_are_counted_once(tmp_path, caplog):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text('{"card": {"format": 2}}')
    run_grid(tiny_grid(), tmp_path, view=View())
    message = f"{tmp_path}: ignoring results written by another version of dab (2)"
    assert [record.getMessage() for record in caplog.records] == [message]


def test_a_source_with_options_is_a_method_like_any_other():
    cells = tiny_grid("source output=causal_prior").cells()
    assert [cell.is_source for cell in cells] == [True, False]


def test_settings_may_have_methods_of_their_own():
    grid = Grid({"mixed": ["tent"], "continual": ["lame"]}, settings=["continual", "mixed"])
    assert [cell.method for cell in grid.cells()] == ["source", "lame", "source", "tent"]


def test_a_data_set_may_have_methods_of_its_own():
    methods = {"mixed": ["tent"], ("cifar10", "mixed"): ["roid"]}
    cells = Grid(methods, data=["glyphs", "cifar10"], settings=["mixed"]).cells()
    assert [(cell.data, cell.method) for cell in cells if not cell.is_source] == [
        ("glyphs", "tent"),
        ("cifar10", "roid"),
    ]


def test_pieces_of_a_stream_are_cells_of_their_own():
    cells = tiny_grid("tent", shards=Shard.parse("3")).cells()
    assert [cell.shard.number for cell in cells] == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"methods": ["tnet"]}, "unknown method 'tnet'; did you mean 'tent'"),
        (
            {"methods": ["tent momentun=1"]},
            "unknown tent option 'momentun'; did you mean 'momentum'",
        ),
        ({"methods": [Method("tent", {"lr": -1.0})]}, "lr must be a number greater than 0"),
        ({"methods": ["note capacity=2.5"]}, "capacity must be an integer"),
        ({"data": ["glyphz"]}, "unknown data 'glyphz'; did you mean 'glyphs'"),
        ({"data": "glyphs"}, "data must be a non-empty list, got 'glyphs'"),
        ({"seeds": []}, "seeds must be a non-empty list"),
        ({"settings": ["continal"]}, "unknown setting 'continal'; did you mean 'continual'"),
        ({"corruptions": ["snoww"]}, "unknown corruption 'snoww'; did you mean 'snow'"),
        (
            {"data": ["imagenet-c image_lists=x"]},
            "unknown imagenet-c option 'image_lists'; did you",
        ),
        ({"data": ["imagenet-c image_list"]}, "write an option of imagenet-c as NAME=VALUE"),
        (
            {"data": ["imagenet-c", "imagenet-c image_list=x"]},
            "duplicate value in data: imagenet-c",
        ),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"partial": True}, "--partial does not apply to glyphs"),
        ({"methods": {"mixed": ["tent"]}}, "the grid has no methods for correlated on glyphs"),
        ({"methods": {("glyphz", "correlated"): ["tent"]}}, "unknown data 'glyphz'; did you mean"),
        ({"methods": {"correlatd": ["tent"]}}, "unknown setting 'correlatd'; did you mean"),
    ],
)
def test_all_of_a_grid_is_checked_when_it_is_made(fields, culprit):
    with pytest.raises(ValueError, match=culprit.replace("(", r"\(")):
        Grid(**{"methods": ["tent"], **fields})


def test_each_data_set_gets_the_options_that_it_takes(tmp_path):
    grid = Grid(data=["glyphs", "cifar10", "imagenet-r"], root=tmp_path, partial=True)
    recipes = grid.recipes()
    assert [recipes[name].root for name in grid.data] == [None, tmp_path, tmp_path]
    assert [recipes[name].partial for name in grid.data] == [False, False, True]


def test_a_data_set_gets_its_own_options():
    grid = Grid(data=["imagenet-c 'image_list=my names.txt'", "imagenet-r"])
    recipes = grid.recipes()
    assert recipes["imagenet-c"].options == {"image_list": Path("my names.txt").absolute()}
    assert recipes["imagenet-r"].options == {}
    assert {cell.data for cell in grid.cells()} == {"imagenet-c", "imagenet-r"}


def test_published_learning_rates_are_those_of_the_methods():
    for cell in suite("glyphs-learning-rates").cells():
        if not cell.is_source:
            default = inspect.signature(dab.method(cell.method)).parameters["lr"].default
            assert cell.options["lr"] / default in FACTORS
            assert cell.corruptions == HELD_OUT


# Running one


class Record(View):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def done(self, cell: Any, result: Any) -> None:
        self.ends.append(cell.method)


@pytest.fixture
def table(tmp_path: Path) -> GridResults:
    return run_grid(tiny_grid("tent", "dab capacity=8", seeds=[0, 1]), tmp_path / "out")


def test_a_grid_gives_what_its_cells_give_alone(table, tmp_path):
    grid = tiny_grid("tent", "dab capacity=8", seeds=[0, 1])
    alone = [run(cell, tiny_task(), tmp_path / "alone") for cell in grid.cells()]
    assert [result.predictions for result in table.results] == [one.predictions for one in alone]
    assert table.failures == []
    source, other, *others = (result.card.source_error for result in table.results)
    assert source is other is None
    assert others == [table.results[0].error, table.results[1].error] * 2
    assert [(row.method, row.seeds) for row in table.rows] == [
        ("source", (0, 1)),
        ("tent", (0, 1)),
        ("dab", (0, 1)),
    ]
    assert {r.card.run_id for r in results(tmp_path / "out")} == {r.card.run_id for r in alone}


def test_options_that_do_not_fit_the_model_are_found_before_anything_runs(tmp_path):
    grid = tiny_grid("tent", "eata features=hed", "dab capacity=8 features=nolayer", seeds=[0, 1])
    expected = (
        r"features='hed' is not a layer.* \(in 'eata features=hed', on tiny\)\n"
        r"features='nolayer' is not a layer.*\(in 'dab capacity=8 features=nolayer', on tiny\)"
    )
    with pytest.raises(ValueError, match=rf"^{expected}$"):
        run_grid(grid, tmp_path / "out", cache=tmp_path / "cache")
    assert not list(tmp_path.iterdir())


def test_a_grid_that_was_run_is_only_read(table, tmp_path):
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*")}
    view = Record()
    again = run_grid(
        tiny_grid("tent", "dab capacity=8", seeds=[0, 1]), str(tmp_path / "out"), view=view
    )
    assert again.results == table.results
    assert sorted(view.ends) == ["dab", "dab", "source", "source", "tent", "tent"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out").rglob("*")} == files


def test_a_table_is_given_in_every_form(table, tmp_path):
    assert repr(table) in table.to_markdown()
    rows = {row.method: row for row in table.rows}
    lines = list(csv.DictReader(table.to_csv().splitlines()))
    assert {line["method"]: float(line["error"]) for line in lines} == {
        name: row.error for name, row in rows.items()
    }
    assert {one["method"]: one["errors"] for one in json.loads(table.to_json())} == {
        name: dict(row.errors) for name, row in rows.items()
    }
    for text in (table.to_markdown(), table._repr_html_()):
        assert all(f"{row.error:.1f} ± {row.deviation:.1f}" in text for row in rows.values())
    written = table.write(tmp_path / "tables", "mine")
    assert [file.name for file in written] == ["mine.md", "mine.csv", "mine.json"]
    assert written[1].read_text() == table.to_csv()


def test_a_table_for_notebooks_escapes_what_it_shows(table):
    from dab.benchmark.results.tables import Entry, to_html

    assert "<b>&lt;script&gt;</b>" in to_html({"a": [[Entry("x")], [Entry("<script>", best=True)]]})
    assert table._repr_html_().count("<tr>") == 4


def test_a_table_as_a_data_frame(table):
    pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert frame["method"].tolist() == ["source", "tent", "dab"]
    assert frame["fog"].tolist() == [row.errors["fog"] for row in table.rows]
    assert frame["error"].tolist() == [row.error for row in table.rows]


def test_without_pandas_the_error_says_what_to_install(table, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'dab-tta\[pandas\]'"):
        table.to_pandas()


FAILING = """
import dab
from dab.methods.source import Source


@dab.register("failing")
class Failing(Source):
    '''Never answers.'''

    def adapt(self, images, logits):
        raise RuntimeError("out of luck")
"""


def test_failures_are_part_of_the_outcome(tmp_path):
    exec(FAILING, {"__name__": "failing"})
    found = run_grid(tiny_grid("failing", "tent"), tmp_path, view=View())
    assert [row.method for row in found.rows] == ["source", "tent"]
    ((cell, failure),) = found.failures
    assert (cell.method, failure.summary) == ("failing", "RuntimeError: out of luck")


def test_results_are_the_same_in_memory_and_on_a_local_engine(tmp_path):
    grid = tiny_grid("tent")
    inline = run_grid(grid, "memory://grid/out", view=View())
    local = run_grid(
        grid,
        tmp_path / "local",
        engine="local",
        jobs=2,
        imports=["tests.support.benchmark_task"],
        view=View(),
    )
    assert [r.predictions for r in local.results] == [r.predictions for r in inline.results]
    with pytest.raises(ValueError, match="exists in one process only: use the inline engine"):
        run_grid(grid, "memory://grid/out", engine="local")


def test_a_device_that_is_missing_is_refused_before_anything_runs(tmp_path):
    grid = tiny_grid("tent", compute=Compute(device="cuda:9"))
    with pytest.raises(ValueError, match="no device 'cuda:9' on this machine"):
        run_grid(grid, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Data sets, suites and engines from outside the package

PLUGIN = """
from dab.benchmark import Grid, Task, TaskFactory, register_engine, register_suite, register_task
from dab.benchmark.engines.inline import Inline
from tests.support.benchmark_task import tiny_task


@register_task("garden")
class Garden(TaskFactory):
    '''Pictures from a garden.'''

    classes = 6
    takes = ("root",)
    options = {"plants": int}

    def create(self, recipe):
        tiny = tiny_task(recipe.options["plants"], samples=recipe.samples)
        return Task("garden", tiny.data, tiny.model, tiny.model_card, None)


@register_suite("harvest")
def harvest():
    '''TENT in the garden.'''
    return Grid(["tent"], data=["garden plants=30"], corruptions=["fog"], samples=20)


@register_engine("garden-engine")
class GardenEngine(Inline):
    '''In the garden.'''
"""


def dab_command(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`dab` in a process of its own, so that what a plugin registers ends with it."""
    (tmp_path / "plugin.py").write_text(PLUGIN)
    return subprocess.run(
        [sys.executable, "-m", "dab", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
    )


def test_one_file_adds_a_data_set_a_suite_and_an_engine(tmp_path):
    own = ["--import", "plugin.py", "--json"]
    listed = dab_command(tmp_path, "data", "list", *own)
    assert listed.returncode == 0, listed.stderr
    (garden,) = [one for one in json.loads(listed.stdout) if one["name"] == "garden"]
    assert garden["summary"] == "Pictures from a garden."
    assert (garden["classes"], garden["takes"], garden["needs"]) == (6, ["root"], "nothing")
    assert garden["options"] == ["plants"]
    found = dab_command(tmp_path, "bench", "--suite", "harvest", "--engine", "garden-engine", *own)
    assert found.returncode == 0, found.stderr
    assert [row["method"] for row in json.loads(found.stdout)] == ["source", "tent"]
    local = dab_command(tmp_path, "bench", "--suite", "harvest", "--jobs", "2", *own, "--out", "b")
    assert local.returncode == 0, local.stderr
    measured = {"images_per_second", "peak_memory_mib"}
    rows = [
        [{k: v for k, v in row.items() if k not in measured} for row in json.loads(one.stdout)]
        for one in (found, local)
    ]
    assert rows[0] == rows[1]


# What the command line says


@pytest.mark.parametrize("name", TASKS.names())
def test_every_data_set_says_what_it_is_and_needs(name, capsys):
    factory = task_factory(name)
    assert factory.summary.endswith(".")
    assert factory.needs
    assert main(["data", "list"]) == 0
    line = next(text for text in capsys.readouterr().out.splitlines() if f"│ {name} " in text)
    assert factory.summary in line
    assert factory.needs in line


def test_help_lists_the_names_of_the_registries(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for dest, registry in (("data", TASKS), ("engine", ENGINES)):
        assert NAMES[dest]() == registry.names()
    for names in NAMES.values():
        assert f"available: {', '.join(names())}" in text or ", ".join(names()) in text


def test_the_lists_for_scripts_are_json(capsys):
    assert main(["methods", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["tent"]["options"]["lr"] == 2.5e-4
    assert (found["tent"]["title"], found["tent"]["year"]) == ("TENT", 2021)
    assert main(["suites", "--json"]) == 0
    suites = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert (suites["paper"]["runs"], suites["paper"]["images"]) == (500, 87_173_500)


STREAM = ["--data", "tiny", "--corruptions", "fog", "--batch-size", "16"]


def test_runs_print_json_for_scripts(capsys):
    assert main(["run", "tent", *STREAM, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["bench", "--method", "tent", *STREAM, "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == alone
    assert [row["method"] for row in alone] == ["source", "tent"]


def test_a_bare_bench_is_small_and_says_what_it_does(capsys, monkeypatch):
    from dab.cli import bench

    found = []
    monkeypatch.setattr(bench, "execute", lambda grid, chosen, **rest: found.append(grid) or 0)
    assert main(["bench"]) == 0
    said = capsys.readouterr().err
    assert "running the suite 'quick'" in said
    assert "dab suites" in said
    (grid,) = found
    assert grid == suite("quick")
    cells = grid.cells()
    assert len(cells) * len(grid.corruptions) * grid.samples < 40_000
    assert {cell.method for cell in cells} == {"source", "tent", "dab", "sequence_dab"}
    assert main(["bench", "--samples", "100"]) == 0
    assert found[1].samples == 100


def test_a_dry_run_prints_its_counts_before_it_measures(monkeypatch, capsys):
    printed = []

    def measure(*_: object) -> float:
        printed.append(capsys.readouterr().out)
        return 100.0

    monkeypatch.setattr("dab.benchmark.estimate.images_per_second", measure)
    assert main(["bench", "--suite", "paper", "--dry-run", "--model", "dab.models.lite0:load"]) == 0
    (counts, *_) = printed
    assert "87,173,500" in counts
    assert "Total: about" in capsys.readouterr().out


def test_a_dry_run_for_scripts(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("dab.benchmark.estimate.images_per_second", lambda *_: 100.0)
    assert main(["bench", "--method", "tent", *STREAM, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (count,) = found["counts"]
    assert (count["data"], count["runs"], count["images"]) == ("tiny", 2, 140)
    assert count["forwards"] == pytest.approx(70 * (1 + 2.2))
    assert found["hours"] == pytest.approx(count["forwards"] / 100 / 3600)
    assert not (tmp_path / "results").exists()


def test_a_dry_run_counts_the_pieces_of_a_stream_once(monkeypatch, capsys):
    monkeypatch.setattr("dab.benchmark.estimate.images_per_second", lambda *_: 100.0)
    shards = ["--shard-streams", "7"]
    assert main(["bench", "--method", "tent", *STREAM, *shards, "--dry-run", "--json"]) == 0
    (count,) = json.loads(capsys.readouterr().out)["counts"]
    assert (count["runs"], count["images"]) == (14, 140)


def test_glyphs_are_counted_without_drawing_any():
    grid = Grid(["tent"], corruptions=CORRUPTIONS[:2], settings=["gradual"], samples=30)
    (cell, _) = grid.cells()
    assert task_factory("glyphs").count(cell, grid.recipes()["glyphs"]) == 30 * 2 * 9
    assert grid.jobs()[0].stream().samples == 30 * 2 * 9


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_options_and_names(shell, capsys, tmp_path):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("bench", "--dry-run", "imagenet-sketch", "slurm", "cifar10-c-published"):
        assert word in script
    if shell == "bash":
        (tmp_path / "dab.bash").write_text(script)
        check = subprocess.run(["bash", "-n", str(tmp_path / "dab.bash")], capture_output=True)
        assert check.returncode == 0


def test_completion_without_its_package_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert error_of(capsys).endswith("pip install 'dab-tta[completion]'\n")
