"""Grids on real engines, with processes killed under them, against the same runs in one process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dab import registry
from dab.benchmark import Cell, Job, TaskRecipe
from dab.benchmark.compute import Compute
from dab.benchmark.engines import Engine, Resources
from dab.benchmark.engines import dispatch as outcomes_of
from dab.benchmark.engines.failure import Failure
from dab.benchmark.engines.inline import Inline
from dab.benchmark.engines.job import work
from dab.benchmark.engines.local import Local, runs_at_once
from dab.benchmark.engines.progress_bars import Bars
from dab.benchmark.engines.slurm import Slurm
from dab.benchmark.results.result import Result
from dab.benchmark.running import claims
from dab.cli import main
from dab.streams import Setting
from dab.utils import files
from tests.support.benchmark_task import assert_same_runs, tiny_cell
from tests.support.cli import error_of, in_progress

ROOT = Path(__file__).parent.parent.parent
PLUGIN = "tests.support.engine_task"
PATIENCE = 1200  # seconds for anything here, on a slow and busy machine


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Methods that are slow or fail, which are forgotten again."""
    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "cache"))
    with registry.METHODS.scope():
        import tests.support.engine_task as plugin  # registers them, the first time

        for method in (plugin.Slow, plugin.Broken, plugin.Deadly):
            registry.METHODS.register(method.name)(method)
        yield


class View(Bars):
    """Bars that remember what they were told."""

    def __init__(self) -> None:
        super().__init__([])
        self.ends: list[str] = []
        self.failures: list[str] = []
        self.losses: list[str] = []

    def done(self, cell: Any, result: Any) -> None:
        self.ends.append(f"{cell.method} {cell.setting}")
        super().done(cell, result)

    def failed(self, cell: Any, failure: Failure) -> None:
        self.failures.append(f"{cell.method}: {failure.summary}")
        super().failed(cell, failure)

    def lost(self, cell: Any, failure: Failure) -> None:
        self.losses.append(f"{cell.method}: {failure.summary}")
        super().lost(cell, failure)


def grid(out: Path, *methods: str, settings: tuple[str, ...] = ("continual",)) -> list[Job]:
    return [
        Job(
            replace(tiny_cell("source"), method=method, setting=Setting.parse(setting)),
            TaskRecipe("tiny"),
            out,
            checkpoint_every=1,
            imports=(PLUGIN,),
        )
        for setting in settings
        for method in ("source", *methods)
    ]


def dispatch(jobs: list[Job], engine: Engine, view: Bars) -> list[Result]:
    """The results of the jobs that have one."""
    found = outcomes_of(jobs, engine, view)
    assert len(found) == len(jobs)
    return [outcome for outcome in found if isinstance(outcome, Result)]


class Turns(Engine):
    """An engine that makes the runs it has taken in this process, when asked what has ended."""

    room = 0

    def __init__(self, room: int) -> None:
        super().__init__(Resources())
        self.room = room
        self.taken: dict[int, Job] = {}
        self.order: list[str] = []
        self.is_closed = False

    def start(self, runs: Any, watch: Any) -> None:
        assert len(runs) <= self.room
        self.taken.update(runs)
        self.room -= len(runs)
        self.order += [f"{job.cell.method} {job.cell.setting}" for job in runs.values()]

    def ended(self) -> dict[int, Failure | None]:
        found = {number: work(job) for number, job in self.taken.items()}
        self.room += len(found)
        self.taken = {}
        return found

    def close(self) -> None:
        self.is_closed = True


# What starts when


def test_sources_go_first_then_the_longest(tmp_path):
    engine, view = Turns(room=1), View()
    jobs = grid(tmp_path, "lame", "tent", "note", settings=("continual", "mixed"))
    results = dispatch(jobs, engine, view)
    assert engine.order == [
        *("source continual", "source mixed"),
        *("note continual", "note mixed", "tent continual", "tent mixed"),
        *("lame continual", "lame mixed"),
    ]
    assert [result.card.method for result in results] == ["source", "lame", "tent", "note"] * 2
    assert engine.is_closed
    again = Turns(room=1)
    assert dispatch(jobs, again, View()) == results
    assert again.order == []  # it is all there


def test_a_stream_waits_for_its_source_alone(tmp_path):
    engine = Turns(room=99)
    dispatch(grid(tmp_path, "tent", "lame", settings=("continual", "mixed")), engine, View())
    assert engine.order[:2] == ["source continual", "source mixed"]
    assert len(engine.order) == 6


def test_a_cell_that_comes_twice_does_not_run_twice_at_once(tmp_path):
    engine = Turns(room=99)
    jobs = grid(tmp_path, "tent", "tent")
    results = dispatch([jobs[0], *jobs], engine, View())
    assert len(results) == 4
    assert results[0] == results[1]
    assert engine.order == ["source continual"] * 2 + ["tent continual"] * 2


def test_a_source_that_fails_fails_its_stream_alone(tmp_path):
    jobs = grid(tmp_path, "tent", settings=("continual", "mixed"))
    jobs[0] = replace(jobs[0], checkpoint_every=0)
    view = View()
    results = dispatch(jobs, Turns(room=2), view)
    assert [result.card.setting for result in results] == ["mixed", "mixed"]
    assert view.failures == [
        "source: ValueError: checkpoint_every must be at least 1, got 0",
        "tent: the source run of its stream failed",
    ]


def test_a_damaged_result_is_a_failure_of_its_cell(tmp_path):
    jobs = grid(tmp_path, "tent", "lame")
    _, result, _ = dispatch(jobs, Turns(room=2), View())
    (file,) = [f for f in tmp_path.glob("*/result.json") if '"method": "tent"' in f.read_text()]
    file.write_text("{}")
    view = View()
    assert len(dispatch(jobs, Turns(room=2), view)) == 2
    assert len(view.failures) == 1
    assert "is damaged" in view.failures[0]
    file.unlink()
    assert dispatch(jobs, Turns(room=2), View())[1].predictions == result.predictions


class Elsewhere(Turns):
    """An engine whose machines write to a folder of their own."""

    def ended(self) -> dict[int, Failure | None]:
        self.taken = {n: replace(job, out=job.out / "other") for n, job in self.taken.items()}
        return super().ended()


def test_a_result_that_is_not_where_it_should_be_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["dab.benchmark.engines.dispatch"], "LATE", 0.0)
    view = View()
    assert dispatch(grid(tmp_path), Elsewhere(room=1), view) == []
    assert "source: no result in" in view.failures[0]
    assert "do all machines share this folder" in view.failures[0]


class Unlucky(Turns):
    """An engine that loses every run, after so many of its batches."""

    def __init__(self, batches: list[int]) -> None:
        super().__init__(room=1)
        self.batches = batches

    def ended(self) -> dict[int, Failure | None]:
        ((number, job),) = self.taken.items()
        self.taken, self.room = {}, 1
        batches = self.batches.pop(0)

        def stop(cell: Cell, seen: int, samples: int) -> None:
            if seen >= 16 * batches:
                raise ConnectionError("the node is gone")

        with suppress(ConnectionError):
            job.run(stop)
        return {number: Failure("its node is gone", lost=True)}


@pytest.mark.parametrize(
    ("batches", "ends_well"),
    [
        ([2, 4, 6, 8, 10, 12, 99], True),  # it moves each time
        ([2, 2, 2, 2, 2], False),
        ([99], True),  # it was lost when its result was there already
    ],
)
def test_a_run_is_lost_for_good_only_if_it_does_not_move(batches, ends_well, tmp_path, monkeypatch):
    monkeypatch.setattr("dab.benchmark.running.progress_file.SECONDS", 0.0)
    view = View()
    results = dispatch(grid(tmp_path), Unlucky(batches), view)
    assert len(results) == ends_well
    assert view.failures == ([] if ends_well else ["source: its node is gone"])


def test_a_storage_that_does_not_take_a_message_ends_no_run(tmp_path, monkeypatch):
    def refuse(file: Path, content: object) -> None:
        if file.name == "progress.json":
            raise OSError("input/output error")
        write(file, content)

    write = files.write
    monkeypatch.setattr(files, "write", refuse)
    (job,) = grid(tmp_path)
    assert job.run().error > 0


def test_a_failed_source_is_not_run_again_for_each_method(tmp_path):
    jobs = [replace(job, checkpoint_every=0) for job in grid(tmp_path, "tent", "lame")]
    view = View()
    assert dispatch(jobs, Inline(Resources()), view) == []
    assert view.failures == [
        "source: ValueError: checkpoint_every must be at least 1, got 0",
        "tent: the source run of its stream failed",
        "lame: the source run of its stream failed",
    ]


def test_a_grid_without_its_source_is_refused(tmp_path):
    engine = Turns(room=1)
    with pytest.raises(ValueError, match="no source run for the stream of tent, tiny"):
        dispatch(grid(tmp_path, "tent")[1:], engine, View())
    assert engine.is_closed


class Watching(View):
    """A view that lets go of a claim when a run has ended."""

    def __init__(self, claim: claims.Claim) -> None:
        super().__init__()
        self.claim = claim
        self.claims: list[str] = []

    def claimed(self, cell: Any, failure: Failure) -> None:
        self.claims.append(cell.method)
        super().claimed(cell, failure)

    def done(self, cell: Any, result: Any) -> None:
        super().done(cell, result)
        if cell.method == "lame":
            self.claim.__exit__(None, None, None)


def test_a_run_that_another_process_makes_waits_while_others_run(tmp_path):
    jobs = grid(tmp_path, "note", "lame")
    source = jobs[0].run()
    claim = claims.try_claim(
        tmp_path / replace(jobs[1], source_error=source.error).card(jobs[1].stream()).run_id
    )
    assert claim is not None
    view, engine = Watching(claim), Turns(room=1)
    assert len(dispatch(jobs, engine, view)) == 3
    assert view.claims == ["note"]
    assert engine.order == ["note continual", "lame continual", "note continual"]


def test_the_inline_engine_reports_the_progress_of_its_runs(tmp_path):
    seen = []

    class Progress(View):
        def watch(self, cell: Any, images: int, samples: int) -> None:
            seen.append((cell.method, images, samples))

    dispatch(grid(tmp_path), Inline(Resources()), Progress())
    batches = [16, 32, 48, 64, 70]
    expected = [70 * domain + images for domain in range(3) for images in batches]
    assert seen == [("source", images, 210) for images in [*expected, 210]]


# How many at once


def test_runs_at_once_leave_no_core_to_two():
    cores = len(os.sched_getaffinity(0))
    assert runs_at_once(Resources()) == cores
    assert runs_at_once(Resources(threads=cores)) == 1
    assert runs_at_once(Resources(threads=2 * cores)) == 1
    assert runs_at_once(Resources(jobs=7, threads=4)) == 7
    assert runs_at_once(Resources(device="cuda:1")) == 1
    assert runs_at_once(Resources(device="mps")) == 1


def test_each_process_has_a_gpu_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert runs_at_once(Resources(device="cuda")) == 2
    engine = Local(Resources())
    (job,) = grid(tmp_path)
    job = replace(job, cell=replace(job.cell, compute=Compute("cuda")))
    placed = [engine._placed(job, slot).cell.compute for slot in range(3)]
    assert [compute.device for compute in placed] == ["cuda:0", "cuda:1", "cuda:0"]
    assert {str(compute.card) for compute in placed} == {str(job.cell.compute.card)}


def test_gpus_go_with_the_device():
    assert Resources().gpus_per_run == 0
    assert Resources(device="cuda").gpus_per_run == 1
    assert Resources(device="cuda", gpus=0.5).gpus_per_run == 0.5


# Processes of this machine


def test_local_processes_make_the_same_runs_and_outlive_failures(tmp_path):
    methods = ("tent", "broken", "lame", "deadly", "note")
    view = View()
    results = dispatch(grid(tmp_path / "local", *methods), Local(Resources(jobs=2)), view)
    assert [result.card.method for result in results] == ["source", "tent", "lame", "note"]
    assert sorted(view.failures) == [
        "broken: RuntimeError: out of luck",
        "deadly: its process was killed by SIGKILL",
    ]
    assert view.losses == ["deadly: its process was killed by SIGKILL"] * 3
    dispatch(grid(tmp_path / "inline", "tent", "lame", "note"), Inline(Resources()), View())
    for folder in (tmp_path / "local").iterdir():  # failed runs leave their progress and claims
        if not (folder / "result.json").exists():
            shutil.rmtree(folder)
    assert_same_runs(tmp_path / "local", tmp_path / "inline")


DAB = "import sys; from dab.cli import main; sys.exit(main())"
METHODS = ["--method", "slow", "--method", "slow lr=1e-3"]
STREAM = ["--data", "tiny", "--corruptions", "contrast", "brightness", "--batch-size", "16"]
BENCH = ["bench", *METHODS, *STREAM, "--import", PLUGIN, "--checkpoint-every", "1"]


@contextmanager
def bench(out: Path, *options: str, seconds: float = 0) -> Iterator[subprocess.Popen[str]]:
    """`dab bench` in a process; with what it started, it has ended in the end, or been ended."""
    cache = str(out.parent / "cache")
    process = subprocess.Popen(
        [sys.executable, "-c", DAB, *BENCH, "--out", str(out), "--cache", cache, *options],
        cwd=out.parent,
        env={
            **os.environ,
            "SECONDS_A_BATCH": str(seconds),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a terminal makes one
    )
    try:
        yield process
    finally:
        left = descendants(process)
        process.kill()
        process.communicate()
        for child in left:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(left, timeout=10)


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def wait_for(condition: Any, process: subprocess.Popen[str]) -> Any:
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "nothing has happened"
        time.sleep(0.02)
    return found


def two_in_progress(out: Path) -> bool:
    """Whether the source is through, and two other runs have begun."""
    return bool(list(out.glob("*/result.json"))) and len(in_progress(out)) == 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of `BENCH`, made in one process without any trouble."""
    out = tmp_path_factory.mktemp("whole") / "out"
    with bench(out, "--jobs", "1") as process:
        printed, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    (out / "printed").write_text(printed)
    return out


def assert_same_tables(out: Path, whole: Path, printed: str) -> None:
    """Bit for bit, in files and on the terminal, but for what was measured."""
    assert_same_runs(out, whole)
    assert (out / "table.md").read_bytes() == (whole / "table.md").read_bytes()
    assert printed == (whole / "printed").read_text().replace(str(whole), str(out))


def finish(out: Path, whole: Path, *options: str) -> str:
    """The same command once more, to its end; what it says."""
    with bench(out, *options) as process:
        printed, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    assert_same_tables(out, whole, printed)
    return errors


def test_ctrl_c_leaves_checkpoints_and_the_same_command_goes_on(tmp_path, whole):
    out = tmp_path / "out"
    with bench(out, "--jobs", "2", seconds=2) as process:
        wait_for(lambda: two_in_progress(out), process)
        workers = descendants(process)
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, errors
    assert printed == ""
    *_, line = errors.splitlines()
    assert line == "dab: stopped with 2 active runs; rerun the same command to resume"
    assert "Traceback" not in errors
    assert len(in_progress(out)) == 2
    assert not list(out.glob("*/*.part"))
    assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []
    finish(out, whole, "--jobs", "2")


def test_workers_whose_parent_is_killed_leave_checkpoints_and_end(tmp_path, whole):
    out = tmp_path / "out"
    # Long enough that the second worker has started before the first has finished.
    with bench(out, "--jobs", "2", "--checkpoint-every", "1000", seconds=6) as process:
        progress = re.compile(r'"seen": (\d+)')

        def seen() -> bool:
            files = out.glob("*/progress.json")
            return sum(bool(progress.search(file.read_text())) for file in files) == 2

        wait_for(lambda: list(out.glob("*/result.json")) and seen(), process)
        workers = descendants(process)
        process.kill()
        assert psutil.wait_procs(workers, timeout=PATIENCE)[1] == []
    assert len(in_progress(out)) == 2
    finish(out, whole, "--jobs", "1")


# Ray


def ray_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Those that have a run."""
    found = []
    for child in descendants(process):
        with suppress(psutil.NoSuchProcess):
            if child.name().startswith("ray::work"):
                found.append(child)
    return found


def test_ray_goes_on_after_a_killed_worker_and_after_ctrl_c(tmp_path, whole):
    pytest.importorskip("ray", reason="Ray is not installed")
    out = tmp_path / "out"
    options = ["--engine", "ray", "--jobs", "2"]
    with bench(out, *options, seconds=2) as process:
        wait_for(lambda: two_in_progress(out), process)
        everything = descendants(process)
        assert all(
            connection.laddr.ip.removeprefix("::ffff:") == "127.0.0.1"
            for child in everything
            if child.is_running()
            for connection in child.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        )
        before = ray_workers(process)
        before[0].kill()
        wait_for(lambda: set(ray_workers(process)) - set(before), process)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, errors
        assert psutil.wait_procs(everything, timeout=PATIENCE)[1] == []
    assert len(re.findall(r"^slow.*resuming from its checkpoint$", errors, re.M)) == 1, errors
    assert "rerun the same command to resume" in errors
    assert in_progress(out)  # the other run may have ended while a new worker started
    finish(out, whole, *options)


# Slurm


def test_slurm_stops_in_good_order_and_goes_on(tmp_path, whole):
    pytest.importorskip("submitit", reason="submitit is not installed")
    out = tmp_path / "out"
    options = ["--engine", "slurm", "--address", "local", "--jobs", "2"]
    with bench(out, *options, seconds=2) as process:
        wait_for(lambda: two_in_progress(out), process)
        everything = descendants(process)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, errors
        assert psutil.wait_procs(everything, timeout=PATIENCE)[1] == []
    assert len(in_progress(out)) == 2
    finish(out, whole, *options)


# The view


def test_the_view_counts_runs_and_images(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    cells = [job.cell for job in grid(tmp_path, "tent", "lame", "note", "eata")]
    source, tent, lame, note, eata = cells
    result = grid(tmp_path)[0].run()
    with Bars([(cell, 100) for cell in cells]) as view:
        (bar,) = view.progress.tasks
        assert "0 done, 0 running, 0 failed of 5" in bar.description
        view.done(source, result)  # it was there
        assert (bar.completed, bar.total) == (0, 400)
        for cell in (tent, lame, note):
            view.watch(cell, 30, 100)
        view.watch(tent, 60, 100)
        assert (bar.completed, bar.total) == (120, 400)
        assert "1 done, 3 running, 0 failed of 5" in bar.description
        view.failed(lame, Failure("out of luck"))
        assert (bar.completed, bar.total) == (120, 330)
        view.lost(note, Failure("its node is gone", lost=True))
        assert "1 done, 1 running, 1 failed of 5" in bar.description
        view.watch(note, 20, 100)  # from its checkpoint on
        assert bar.completed == 110
        view.watch(tent, 100, 100)
        view.done(tent, result)
        view.failed(eata, Failure("out of luck"))
        view.watch(note, 100, 100)
        view.done(note, result)
        assert "3 done, 0 running, 2 failed of 5" in bar.description
        assert bar.completed == bar.total == 230
    printed = capsys.readouterr().err
    assert "lame, tiny, continual, seed 0: failed: out of luck" in printed
    assert "note, tiny, continual, seed 0: its node is gone; resuming from its" in printed


# Bad input


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ("--engine slurm --address nowhere", "must be slurm or local, got 'nowhere'"),
        ("--engine slurm --address local --gpus-per-run 0.5", "Slurm assigns whole GPUs"),
        ("--jobs 2 --out memory://x/out", "memory://x/out exists in one process only"),
        ("--device cuda:9", "no device 'cuda:9' on this machine"),
        ("--engine slurm --address local --device cuda:9", "no device 'cuda:9' on this machine"),
        ("--engine slurm --address local --slurm color=red", "--slurm: "),
        ("--engine ray --address 127.0.0.1:9", "no Ray cluster answers at 127.0.0.1:9: "),
        ("--engine ray --slurm partition=a", "--slurm requires engine slurm"),
        ("--address nowhere", "--address requires engine ray or slurm"),
        ("--engine inline --jobs 2", "the inline engine runs one job at a time, not 2"),
        ("--gpus-per-run 1", "--gpus-per-run requires engine ray or slurm"),
    ],
)
def test_engines_refuse_what_they_cannot_do(options, culprit, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([*BENCH, *options.split()]) == 2
    assert culprit in error_of(capsys)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_engine_without_its_package_says_how_to_get_it(engine, package, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    assert main([*BENCH, "--engine", engine]) == 2
    assert error_of(capsys).endswith(f": pip install 'dab-tta[{engine}]'\n")


def test_there_is_no_silent_way_around_slurm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="use --address local to run without Slurm"):
        Slurm(Resources())
