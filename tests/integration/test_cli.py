"""The command line."""

from __future__ import annotations

import csv
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import dab
from dab.benchmark import Grid, parse_method, register_suite, suite
from dab.benchmark.suites import SUITES
from dab.benchmark.tasks import TASKS
from dab.cli import bench, main, parser
from tests.support.benchmark_task import assert_same_runs, by_method
from tests.support.cli import HERE, STREAM, error_of, help_of, in_progress

ROOT = Path(__file__).parent.parent.parent

# `dab methods`


def test_methods_lists_every_method_with_its_options_and_defaults(capsys):
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    for name in dab.methods():
        cls = dab.method(name)
        assert f"{name}: " in printed
        assert cls.paper in printed
        assert f"{name}: {cls.title}{f' ({cls.year})' if cls.year else ''}. " in printed
        assert f"forward passes: {cls.forwards:g}" in printed
        for option in inspect.signature(cls).parameters.values():
            assert option.name == "model" or f"{option.name} = {option.default!r}: " in printed
    assert "    lr = 0.00025: a number greater than 0" in printed


def test_methods_lists_only_those_asked_for(capsys):
    assert main(["methods", "sar"]) == 0
    printed = capsys.readouterr().out
    assert "reset_below = 0.2" in printed
    assert "eata: " not in printed


def test_the_package_is_a_command():
    result = subprocess.run(
        [sys.executable, "-m", "dab", "methods", "source"], capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("source: Source. Predicts and never adapts.\n  no adaptation\n")


def test_the_names_are_those_of_the_tables():
    expected = "adacontrast cotta dab eata lame note roid rotta sar source tent"
    assert [name for name in dab.methods() if name in expected.split()] == expected.split()


# Help

COMMANDS = ["methods", "run", "bench", "suites", "report", "watch", "serve", "data", "completion"]


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_has_examples_that_are_right(command, capsys):
    text = help_of(capsys, *command)
    _, _, examples = text.partition("\nexamples:\n")
    lines = re.findall(r"^  (dab .*)$", examples.replace("\\\n", ""), re.MULTILINE)
    assert lines
    for line in lines:
        line = line.replace("s3://", "memory://")  # needs no package of its own
        arguments = shlex.split(re.split(r" {3,}(?!-)", line)[0])
        chosen = parser().parse_args(arguments[1:])
        assert chosen.command in COMMANDS
        assert not command or [chosen.command] == command


def test_help_names_every_command(capsys):
    text = help_of(capsys)
    assert all(re.search(rf"^    {name}\b", text, re.MULTILINE) for name in COMMANDS)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"dab {dab.__version__}\n"


# Grids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dab", [("dab", {})]),
        ("dab capacity=64", [("dab", {"capacity": 64})]),
        (" dab  lr=1e-3 ", [("dab", {"lr": 0.001})]),
        (
            "dab lr=1,2.5 trigger=any,outgoing",
            [
                ("dab", {"lr": 1, "trigger": "any"}),
                ("dab", {"lr": 1, "trigger": "outgoing"}),
                ("dab", {"lr": 2.5, "trigger": "any"}),
                ("dab", {"lr": 2.5, "trigger": "outgoing"}),
            ],
        ),
        ("x a=None b=True c=-3 d=d=e", [("x", {"a": None, "b": True, "c": -3, "d": "d=e"})]),
        ("", [("", {})]),
    ],
)
def test_methods_are_read_with_their_options(text, expected):
    found = parse_method(text)
    assert found == expected
    assert [list(map(type, a.values())) for _, a in found] == [
        list(map(type, b.values())) for _, b in expected
    ]


@pytest.mark.parametrize("option", ["capacity", "capacity=", "=64x"])
def test_a_misspelt_option_is_named(option, capsys):
    assert main(["bench", "--method", f"dab {option}"]) == 2
    culprit = option.partition("=")[0] or "''"
    assert culprit in error_of(capsys)


def grid(*arguments: str) -> Grid:
    """What `dab bench` makes of its arguments."""
    return bench.chosen_grid(parser().parse_args(["bench", *arguments]))


def test_a_grid_is_every_combination_with_the_source_first():
    methods = ["--method", "tent", "--method", "source", "--method", "dab capacity=64,256"]
    data = ["--data", "glyphs", "cifar10", "--corruptions", "held-out", "--severity", "2"]
    order = ["--setting", "continual", "correlated:0.1", "--seeds", "3", "4", "--batch-size", "8"]
    cells = grid(*methods, *data, *order).cells()
    found = [
        (cell.data, str(cell.setting), cell.method, cell.options.get("capacity"), cell.seed)
        for cell in cells
    ]
    assert found == [
        (data, setting, *method, seed)
        for data in ("glyphs", "cifar10")
        for setting in ("continual", "correlated:0.1")
        for method in (("source", None), ("tent", None), ("dab", 64), ("dab", 256))
        for seed in (3, 4)
    ]
    held_out = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert {cell.corruptions for cell in cells} == {held_out}
    assert {(cell.batch_size, cell.severity) for cell in cells} == {(8, 2)}


@pytest.mark.parametrize("name", SUITES.names())
def test_every_suite_is_a_grid(name):
    assert grid("--suite", name) == suite(name)
    assert {cell.data for cell in suite(name).cells()} <= set(TASKS)


def test_run_and_bench_have_the_same_defaults(monkeypatch):
    from dab.cli import run

    found = []
    monkeypatch.setattr(run, "execute", lambda grid, chosen, domains: found.append(grid) or 0)
    assert main(["run", "tent"]) == 0
    assert found == [grid("--method", "tent")] == [Grid(["tent"])]
    assert [str(cell.setting) for cell in found[0].cells()] == ["correlated"] * 2


# Bad input


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ("methods sra", "unknown method 'sra'; did you mean 'sar'? available: adacontrast, "),
        ("run sra", "unknown method 'sra'; did you mean 'sar'? available: adacontrast, "),
        (
            "run dab capactiy=64",
            "unknown dab option 'capactiy'; did you mean 'capacity'? available: ",
        ),
        ("run dab seed=1", "unknown dab option 'seed'; available: capacity, "),
        ("run dab capacity=abc", "capacity must be an integer"),
        ("run dab capacity=0", "got 0 (in 'dab capacity=0')"),
        ("run dab lr=nan", "lr must be a number greater than 0, got 'nan'"),
        ("bench --method tent --method 'dab lr=1e-3,-1'", "got -1 (in 'dab lr=-1')"),
        ("run dab capacity", "write an option as NAME=VALUE, got 'capacity'"),
        ("run dab --setting corelated", "unknown setting 'corelated'; did you mean 'correlated'? "),
        ("run dab --setting correlated:x", "unknown setting 'correlated:x'; "),
        ("run dab --setting correlated:-1", "delta must be a positive number, got -1"),
        (
            "run dab --data imagenet",
            "unknown data 'imagenet'; did you mean 'imagenet-r'? available: cifar10, cifar10-c, ",
        ),
        (
            "run dab --data tiny --corruptions forg",
            "unknown corruption 'forg'; did you mean 'fog'?",
        ),
        ("run dab --data tiny --corruptions fog fog", "'fog' is named more than once"),
        ("run dab --data tiny --samples 71", "cannot take 71 of 70 images"),
        ("run mine --import mine.py", "cannot import mine.py: no such file"),
        ("run mine --import no_such_module", "cannot import no_such_module: No module named"),
        ("bench --suite dmeo", "unknown suite 'dmeo'; did you mean 'demo'? available: "),
        ("bench --suite demo --only tnet", "unknown method of this grid 'tnet'; did you mean"),
        ("bench --only tent", "--only takes methods from a suite"),
        ("bench --suite demo --only tent --method dab", "--only takes methods from a suite"),
        ("bench --method sra", "unknown method 'sra'; did you mean 'sar'? available: "),
        ("bench --method sar --engine locla", "unknown engine 'locla'; did you mean 'local'? "),
        ("bench --data tiny --log wnadb", "unknown logger 'wnadb'; did you mean 'wandb'? "),
        ("run dab --data tiny --root .", "--root does not apply to tiny, only to: cifar10, "),
        ("bench --data tiny --setting continual sorted", "unknown setting 'sorted'; "),
        ("bench --data tiny nowhere", "unknown data 'nowhere'; available: "),
        ("bench --data tiny --corruptions fog rain", "unknown corruption 'rain'; "),
    ],
)
def test_bad_input_gets_one_error_that_names_the_culprit(arguments, culprit, tmp_path, capsys):
    assert main(shlex.split(arguments)) == 2
    assert culprit in error_of(capsys)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ("run dab --batch-size 0", "argument --batch-size: must be at least 1, got 0"),
        ("run dab --checkpoint-every 0", "argument --checkpoint-every: must be at least 1, got 0"),
        ("run dab --threads 0", "argument --threads: must be at least 1, got 0"),
        ("run dab --samples 0", "argument --samples: must be at least 1, got 0"),
        ("run dab --workers -1", "argument --workers: must be at least 0, got -1"),
        ("run dab --seed -1", "argument --seed: must be at least 0, got -1"),
        ("run dab --seed one", "argument --seed: invalid number value: 'one'"),
        ("bench --seeds 0 -1", "argument --seeds: must be at least 0, got -1"),
        ("bench --method tent lr=3", "unrecognized arguments: lr=3"),
        ("run dab --severity 6", "unknown --severity '6'; available: 1, 2, 3, 4, 5"),
        ("data imagenet", "unknown command 'imagenet'; available: list, get, check, corrupt"),
        ("benhc", "unknown command 'benhc'; did you mean 'bench'?"),
        ("bench --sed 1", "unrecognized arguments: --sed 1; did you mean --seeds?"),
        ("bench --methods=tent", "unrecognized arguments: --methods=tent; did you mean --method?"),
        ("run tent --seeds 1", "unrecognized arguments: --seeds 1; did you mean --seed?"),
        ("data chek", "unknown command 'chek'; did you mean 'check'?"),
        ("data check imagenet-r --rot x --root y", "unrecognized arguments: --rot x; did you mean"),
        ("run tent --precision bf15", "unknown --precision 'bf15'; did you mean 'bf16'?"),
    ],
)
def test_what_cannot_be_parsed_is_named_below_the_usage(arguments, culprit, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    usage, *_, line = capsys.readouterr().err.splitlines()
    assert usage.startswith("usage: dab")
    assert culprit in line


def test_a_missing_package_is_said_to_be_installable(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main(["bench", "--method", "tent", *HERE]) == 2
    assert error_of(capsys).endswith("pip install 'dab-tta[benchmark]'\n")


# Runs


def numbers(out: Path) -> dict[str, float]:
    """The error of every method, out of the table for programs."""
    lines = csv.DictReader((out / "table.csv").read_text().splitlines())
    return {line["method"]: float(line["error"]) for line in lines}


@pytest.mark.usefixtures("tiny")
def test_run_prints_and_writes_its_tables(tmp_path, capsys):
    command = ["run", "tent", "lr=0.005", *STREAM, "--seed", "3", "--setting", "correlated"]
    assert main([*command, "--severity", "4", "--samples", "50"]) == 0
    captured = capsys.readouterr()
    results = by_method(tmp_path / "results")
    assert sorted(results) == ["source", "tent"]
    card = results["tent"]["card"]
    assert card["options"]["lr"] == 0.005
    assert card["data"]["samples"] == 100
    assert card["data"]["severity"] == 4
    assert (card["seed"], card["setting"], card["batch_size"]) == (3, "correlated", 16)
    for name, result in results.items():
        options = " lr=0.005" if name == "tent" else ""
        line = f"{name}{options}, tiny, correlated, seed 3: error {result['error']:.1f} %"
        assert line in captured.err.splitlines()
        assert f" {result['error']:.1f} " in captured.out
        for error in result["errors"].values():
            assert f" {error:.1f} " in captured.out
    assert "contr" in captured.out  # errors by domain
    assert "Error in %, one seed. ↑: worse" in captured.out
    assert "Tables written to results/table.md, " in captured.out
    assert numbers(Path("results")) == {name: r["error"] for name, r in results.items()}
    assert len(json.loads(Path("results/table.json").read_text())) == 2
    # Once more, it is all there.
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("results/*/*")}
    assert main([*command, "--severity", "4", "--samples", "50"]) == 0
    assert capsys.readouterr().out == captured.out
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("results/*/*")} == before


@pytest.mark.usefixtures("tiny")
def test_bench_runs_a_grid(capsys):
    command = ["bench", *HERE, *STREAM, "--method", "tent", "--method", "dab capacity=16,32"]
    command += ["--seeds", "0", "1", "--setting", "mixed", "--out", "here"]
    assert main(command) == 0
    captured = capsys.readouterr()
    assert not Path("results").exists()
    lines = list(csv.DictReader(Path("here/table.csv").read_text().splitlines()))
    found = [(line["method"], line["capacity"], line["seeds"]) for line in lines]
    methods = [("source", ""), ("tent", ""), ("dab", "16"), ("dab", "32")]
    assert found == [(*method, "0 1") for method in methods]
    assert all(line["deviation"] for line in lines)
    assert "±" in captured.out
    assert "contr" not in captured.out  # no --domains
    assert main([*command, "--domains"]) == 0
    assert "contr" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cifar10-c-published", "paper"])
def test_a_part_of_a_suite_keeps_the_options_of_the_suite(name):
    whole = [cell for cell in suite(name).cells() if cell.method in ("source", "eata", "rotta")]
    assert grid("--suite", name, "--only", "rotta", "eata").cells() == whole


def test_the_source_model_is_a_part_of_every_suite():
    (cell,) = grid("--suite", "demo", "--only", "source").cells()
    assert cell.is_source
    with_markov = grid("--suite", "cifar10-c-ours", "--only", "source").cells()
    assert [cell.options for cell in with_markov] == [{}, {"output": "markov"}]


@pytest.mark.usefixtures("tiny")
def test_a_part_of_a_suite_has_tables_of_its_own():
    with SUITES.scope():
        register_suite("small")(small)
        command = ["bench", "--suite", "small", *HERE]
        assert main(command) == 0
        whole = Path("results/small.md").read_text()
        assert main([*command, "--only", "source"]) == 0
    assert Path("results/small.md").read_text() == whole
    assert Path("results/small-source.md").exists()


@pytest.mark.usefixtures("tiny")
def test_options_replace_those_of_a_suite():
    with SUITES.scope():
        register_suite("small")(small)
        corruptions = ["--corruptions", "contrast"]
        assert main(["bench", *HERE, "--suite", "small", "--setting", "mixed", *corruptions]) == 0
        lines = list(csv.DictReader(Path("results/small.csv").read_text().splitlines()))
        assert [(line["method"], line["setting"], line["seeds"]) for line in lines] == [
            ("source", "mixed", "5"),
            ("tent", "mixed", "5"),
        ]
        assert main(["bench", *HERE, "--suite", "small", "--seeds", "6", *corruptions]) == 0
        lines = list(csv.DictReader(Path("results/small.csv").read_text().splitlines()))
        assert [(line["setting"], line["seeds"]) for line in lines] == [("correlated", "6")] * 2


def small() -> Grid:
    """TENT on tiny images."""
    return Grid(["tent"], data=["tiny"], seeds=[5])


@pytest.mark.usefixtures("tiny")
def test_a_terminal_shows_bars_and_colors(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["run", "tent", "lr=0.5", *STREAM]) == 0
    captured = capsys.readouterr()
    assert "all runs" in captured.err
    assert "tent lr=0.5, tiny, correlated, seed 0" in captured.err
    error = by_method(Path("results"))["tent"]["error"]
    assert re.search(rf"\x1b\[31m *{error:.1f} ↑", captured.out)


@pytest.mark.usefixtures("tiny")
def test_threads_are_torchs(monkeypatch):
    found, answer = [], dab.Adapter.forward

    def forward(self, images):
        found.append(torch.get_num_threads())
        return answer(self, images)

    monkeypatch.setattr(dab.Adapter, "forward", forward)
    before = torch.get_num_threads()
    for threads in (before + 1, before):  # the same but for its threads is another run
        assert main(["run", "source", *STREAM, "--threads", str(threads)]) == 0
        assert set(found) == {threads}
        assert torch.get_num_threads() == before
        found.clear()
    assert len(list(Path("results").glob("*/result.json"))) == 2


MINE = """
from __future__ import annotations

import os
import time
from dataclasses import dataclass

import dab
from dab.methods.source import Source


@dataclass
class Memory:
    calls: int = 0


@dab.register("mine")
class Mine(Source):
    '''Counts.'''

    def __init__(self, model, *, step=1, seed=0):
        super().__init__(model, seed=seed)
        self.step = step

    def begin(self, classes):
        return Memory()

    def adapt(self, images, logits):
        time.sleep(float(os.environ.get("SECONDS_A_BATCH", "0")))
        self.memory.calls += 1
        self.last.admitted = self.step * self.memory.calls
        return logits


@dab.register("broken")
class Broken(Source):
    '''Adapts to nothing.'''

    def adapt(self, images, logits):
        raise RuntimeError("no [bold]luck[/] with [/this]")
"""


@pytest.mark.usefixtures("tiny")
def test_a_method_of_ones_own_runs():
    Path("dab.py").write_text(MINE)  # of all names
    assert main(["run", "mine", "step=2", *STREAM, "--import", "dab.py"]) == 0
    assert by_method(Path("results"))["mine"]["admitted"] == 2 * sum(range(1, 11))
    assert sys.modules["dab"] is dab


@pytest.mark.usefixtures("tiny")
def test_a_module_of_ones_own_is_imported_by_name(monkeypatch, tmp_path):
    Path("own_methods_of_a_test.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["run", "mine", *STREAM, "--import", "own_methods_of_a_test"]) == 0
    assert by_method(Path("results")).keys() == {"source", "mine"}


@pytest.mark.usefixtures("tiny")
def test_a_method_file_that_lacks_a_package_is_named(capsys):
    Path("lacking.py").write_text("import no_such_package")
    assert main(["run", "mine", *STREAM, "--import", "lacking.py"]) == 2
    assert error_of(capsys) == "dab: cannot import lacking.py: No module named 'no_such_package'\n"


@pytest.mark.usefixtures("tiny")
def test_a_cell_that_fails_does_not_stop_the_others(capsys):
    Path("mine.py").write_text(MINE)
    methods = ["--method", "broken", "--method", "mine"]
    assert main(["bench", *HERE, *methods, *STREAM, "--import", "mine.py"]) == 1
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    where = "tiny, correlated, seed 0"
    assert f"broken, {where}: failed: RuntimeError: no [bold]luck[/] with [/this]" in lines
    assert numbers(Path("results")).keys() == {"source", "mine"}
    assert "broken" not in captured.out


@pytest.mark.usefixtures("tiny")
def test_a_grid_of_failures_has_no_table(capsys):
    Path("results").write_text("this is no folder")
    assert main(["run", "tent", *STREAM]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    *lines, total = captured.err.splitlines()
    assert [": failed: " in line for line in lines] == [True, True]
    assert total == "dab: 2 of 2 runs failed"


# Signals, as they reach a process from a terminal or a scheduler

DAB = """
import sys
import tests.support.benchmark_task
from dab.cli import main
sys.exit(main())
"""


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("kind", "send"),
    [
        (signal.SIGINT, os.killpg),  # Ctrl-C is for all processes of a terminal
        (signal.SIGTERM, os.kill),
        (signal.SIGTERM, os.killpg),  # a scheduler may end workers, too
    ],
)
def test_a_signal_leaves_a_run_that_goes_on_and_ends_with_the_same_bits(kind, send, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    arguments = ["run", "mine", *STREAM, "--import", str(file), "--checkpoint-every", "1"]
    arguments += ["--workers", "1", "--out"]
    out = tmp_path / "stopped"
    process = subprocess.Popen(
        [sys.executable, "-c", DAB, *arguments, str(out)],
        cwd=ROOT,
        env={**os.environ, "SECONDS_A_BATCH": "0.2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a terminal makes one
    )
    while not (list(out.glob("*/result.json")) and in_progress(out)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    send(process.pid, kind)
    printed, errors = process.communicate(timeout=1200)
    assert process.returncode == 130, errors
    assert printed == ""
    *_, line = errors.splitlines()
    how = r"after \d of 10 batches"
    assert re.fullmatch(f"dab: stopped {how}; rerun the same command to resume", line), errors
    assert not list(out.glob("*/*.part"))
    assert main([*arguments, str(out)]) == 0
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    assert_same_runs(out, tmp_path / "whole")
