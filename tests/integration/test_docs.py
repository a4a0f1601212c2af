"""The commands and examples of the documentation are executed."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import dab
import dab.testing
from dab.benchmark.tasks.registry import TASKS
from dab.cli import parser
from dab.cli.bench import chosen_grid, is_bare
from dab.parts import options
from dab.registry import METHODS
from dab.utils.text import assignments
from tests.support.serving import OPTIONS, Site

ROOT = Path(__file__).parent.parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *map(str, ROOT.glob("docs/*.md"))]


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


@pytest.fixture
def _own_generator():
    """Examples seed torch globally; other tests must not notice."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


@pytest.mark.usefixtures("_own_generator")
def test_the_examples_of_the_readme_adapt():
    short, example = blocks("README.md", "python")
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(example, names)
    shown = {"model": names["zoo"].load("glyphs"), "stream": names["noisy"].split(64)}
    exec(short, shown)
    assert shown["adapter"].totals == names["adapter"].totals
    adapted, source = names["adapter"], dab.create("source", names["zoo"].load("glyphs"))
    glyphs = names["Glyphs"].of_split("test", 2000)
    last, labels = names["noisy"][-500:], torch.as_tensor(glyphs.labels[-500:])
    assert adapted.totals.updates > 20
    errors = [(a.predict(last).argmax(1) != labels).double().mean() for a in (adapted, source)]
    assert errors[0] < 0.45
    assert errors[1] > 0.6


def test_the_quickstart_has_the_examples_of_the_readme():
    assert blocks("docs/index.md", "python") == blocks("README.md", "python")


@pytest.mark.usefixtures("_own_generator")
def test_the_examples_of_the_guide_adapt_save_and_resume(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    adapt, resume = blocks("docs/own_model.md", "python")
    names: dict[str, Any] = {}
    exec(adapt, names)
    first, *_, last = map(int, re.findall(r"error (\d+)%", capsys.readouterr().out))
    assert last < first - 15
    totals = names["adapter"].totals
    assert totals.updates > 20
    exec(resume, names)
    assert names["adapter"].totals == totals
    assert names["model"] is names["adapter"].model


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs cc on Linux")
def test_the_answer_to_mkl_of_the_production_guide_is_loaded_first(tmp_path):
    block = next(found for found in blocks("docs/production.md", "sh") if "mkl_serv" in found)
    (tmp_path / "app.py").write_text(
        "import ctypes, torch\n"
        "matrix = torch.arange(4096.0).view(64, 64)\n"
        "assert torch.equal(matrix @ torch.eye(64), matrix)\n"
        "assert ctypes.CDLL(None).mkl_serv_intel_cpu_true() == 1\n"
    )
    commands = block.replace("python app.py", f"{shlex.quote(sys.executable)} app.py")
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True)


def test_the_example_of_the_production_guide_resumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("docs/production.md", "python")
    names: dict[str, Any] = {}
    exec(example, names)
    images = torch.rand(32, 3, 8, 8)
    assert torch.equal(names["resumed"](images), names["adapter"](images))


@pytest.mark.usefixtures("_own_generator")
def test_the_examples_of_the_guard_run(capsys):
    names: dict[str, Any] = {}
    for example in blocks("docs/guard.md", "python"):
        exec(example, names)
    assert names["adapter"].guard is not None
    assert "healthy" in capsys.readouterr().out
    assert names["monitor"].lower.count


@pytest.mark.usefixtures("_own_generator")
def test_the_examples_of_the_guide_to_fleets_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for example in blocks("docs/fleet.md", "python"):
        exec(example, names)
    assert names["fleet"].streams == ["cam-1", "cam-7"]
    assert names["fleet"].aside == ["cam-2"]
    assert "healthy" in capsys.readouterr().out
    assert names["adapter"].totals == names["fleet"].stream("cam-1").totals


def test_the_make_targets_of_the_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = {
        target
        for page in PAGES
        for block in blocks(page, "sh")
        for target in re.findall(r"^make (\w+)", block, re.MULTILINE)
    }
    assert targets >= {"demo", "quick", "test"}
    assert [t for t in targets if not re.search(rf"^{t}( \w+)*:", makefile, re.MULTILINE)] == []


def own_methods() -> list[str]:
    """The methods of the package; other tests may have registered more."""
    return [name for name in dab.methods() if dab.method(name).__module__.startswith("dab.")]


def test_every_method_has_a_section_with_its_equation():
    text = (ROOT / "docs/methods.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert sorted(sections) == own_methods()
    assert [name for name, part in sections.items() if "```math" not in part] == ["source"]


def test_every_method_is_in_the_readme_and_on_the_api_page():
    readme, api = (ROOT / "README.md").read_text(), (ROOT / "docs/api.md").read_text()
    (members,) = re.findall(r"members: \[(.*)\]", api)
    assert [name for name in own_methods() if f"| `{name}` |" not in readme] == []
    assert {dab.method(name).__name__ for name in own_methods()} == set(members.split(", "))


def test_the_api_page_states_the_ranges_of_options():
    page = (ROOT / "docs/api.md").read_text()
    rows = re.findall(r"^\| `(\w+)`.* \| (float|int) (.*) \|", page, re.MULTILINE)
    stated = {name: (kind, words) for name, kind, words in rows}
    ranges = {
        name: (alias.__origin__.__name__, check.words)
        for name, alias in vars(options).items()
        for check in getattr(alias, "__metadata__", ())
        if isinstance(check, options.Range) and name != "Positive"  # on the line of Rate
    }
    assert stated == ranges


NOTEBOOKS = {
    "own_model": ["63 classes in a buffer of 64", "identical to the bit: True"],
    "demo": ["classes in the buffer at the end"],
    "video": ["1200 frames in 80 tracks"],
}


@pytest.mark.filterwarnings("ignore")  # those of the tools that run notebooks
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebooks_run_and_show_what_they_print(name, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    book = nbformat.read(ROOT / f"docs/notebooks/{name}.ipynb", as_version=4)
    stored = printed(book)
    pictures = [output for output in outputs(book) if "image/png" in output.get("data", {})]
    assert len(pictures) >= 2
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=600, resources=resources).execute()
    # The last digits may differ between machines.
    assert re.sub(r"[\d.]+", "#", printed(book)) == re.sub(r"[\d.]+", "#", stored)
    assert all(line in printed(book) for line in NOTEBOOKS[name]), printed(book)
    errors = dict(re.findall(r"^(\w+): ([\d.]+) %", printed(book), re.MULTILINE))
    adapted = errors["sequence_dab" if name == "video" else "dab"]
    assert float(adapted) < float(errors["source"]) - 5


def outputs(book: Any) -> list[Any]:
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def printed(book: Any) -> str:
    """What the cells print, without progress bars."""
    return "".join(o["text"] for o in outputs(book) if o.get("name") == "stdout")


@pytest.mark.parametrize("document", PAGES)
def test_the_commands_of_the_documents_are_right(document):
    for block in blocks(document, "sh"):
        for line in re.findall(r"^dab .*", block.replace("\\\n", ""), re.MULTILINE):
            # A store that needs no package stands in for those that do.
            words = shlex.split(line.replace("s3://", "memory://"), comments=True)
            chosen = parser().parse_args(words[1:])
            if chosen.command == "bench" and not is_bare(chosen) and not chosen.imports:
                assert chosen_grid(chosen).cells()


@pytest.mark.usefixtures("_own_generator")
def test_the_grids_of_the_benchmark_guide_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "cache"))
    with TASKS.scope():
        for example in blocks("docs/benchmark.md", "python"):
            exec(example, {"__name__": "example"})
    shown = capsys.readouterr().out
    assert "### glyphs, correlated" in shown
    assert "### squares, correlated" in shown


def test_the_examples_of_the_guide_to_models_run(tmp_path):
    use, own = blocks("docs/models.md", "python")
    exec(use, {})
    (tmp_path / "mine.py").write_text(own)
    model, transform, card = dab.load_model(f"{tmp_path}/mine.py:load")
    assert (card["classes"], transform.crop) == (10, 32)
    assert dab.create("tent", model)(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_the_method_of_the_contributing_guide_keeps_the_contract():
    (example,) = blocks("CONTRIBUTING.md", "python")
    with METHODS.scope():
        exec(example, {"__name__": "example"})
        dab.testing.check_method("mine", nets=["layernorm"])


def test_broken_links_fail_the_site(tmp_path):
    """There are no other warnings: the site as it is has none."""
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    page = tmp_path / "docs" / "costs.md"
    page.write_text(f"{page.read_text()}\n[a page](nowhere.md), [a section](api.md#nothing)\n")
    (command,) = re.findall(r"mkdocs (build .*)", (ROOT / "Makefile").read_text())
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 1
    assert "contains a link 'nowhere.md'" in built.stderr
    assert "does not contain an anchor" in built.stderr
    assert "Aborted with 2 warnings" in built.stdout + built.stderr


def test_every_relative_link_leads_somewhere():
    for document in ROOT.glob("**/*.md"):
        if not document.relative_to(ROOT).parts[0].startswith("."):
            for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
                assert (document.parent / target).exists(), (document, target)


def test_the_walks_of_the_contributing_guide_name_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walks = text[text.index("## Three walks") : text.index("## Add a method")]
    folders = [ROOT / "src/dab", ROOT / "src/dab/benchmark"]
    files = re.findall(r"`([\w/]+(?:\.py|/))`", walks)
    assert len(files) > 20
    assert [name for name in files if not any((f / name).exists() for f in folders)] == []


@pytest.mark.usefixtures("_own_generator")
def test_the_example_of_the_video_guide_reads_a_video_file(tmp_path, monkeypatch):
    import cv2
    import numpy as np

    monkeypatch.chdir(tmp_path)
    writer = cv2.VideoWriter("drive.avi", cv2.VideoWriter.fourcc(*"MJPG"), 25, (48, 40))
    for size in range(10, 20):  # a red square comes closer
        frame = np.full((40, 48, 3), 90, np.uint8)
        frame[20 - size : 20 + size, 24 - size : 24 + size] = (30, 30, 200)
        writer.write(frame)
    writer.release()
    (example,) = blocks("docs/video.md", "python")
    names: dict[str, Any] = {}
    exec(example, names)
    assert len(names["answers"]) == names["adapter"].totals.samples == 10
    frame = next(names["frames"](cv2.VideoCapture("drive.avi")))
    red, _, blue = frame[16, 16].tolist()
    assert red > 150 > blue  # not as OpenCV has it


def test_the_tables_of_the_video_guide_are_those_of_the_stored_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    video = runpy.run_path(str(ROOT / "docs/video.py"))
    rows = json.loads((ROOT / "docs/video.json").read_text())
    page = (ROOT / "docs/video.md").read_text()
    assert video["table"](rows) in page
    assert video["weather_table"](rows) in page
    batches = [row for row in rows if row["batch_size"] == 64]
    # The summary of the results has the same runs.
    shown = {
        " ".join([row["method"], *assignments(row["options"])]): row["error"]
        for batch in json.loads((ROOT / "docs/results/gtsrb.json").read_text())
        for row in batch["rows"]
    }
    assert shown == {
        row["method"]: pytest.approx(fmean(row["errors"]), abs=0.002) for row in batches
    }


def test_every_commit_of_the_results_exists():
    def git(*words: str) -> str:
        found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return found.stdout.strip()

    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("no whole repository")
    stored = [json.loads(path.read_text()) for path in ROOT.glob("docs/results/*.json")]
    batches = [one for of in stored for one in (of if isinstance(of, list) else [of])]
    for commit in {batch["commit"] for batch in batches}:
        assert git("cat-file", "-t", commit) == "commit", commit


def test_the_tables_of_the_guard_are_those_of_the_stored_results(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    guard = runpy.run_path(str(ROOT / "docs/guard.py"))
    cells = json.loads((ROOT / "docs/guard.json").read_text())
    page = (ROOT / "docs/guard.md").read_text()
    for table in ("summary", "tables", "healthy"):
        text = guard[table](cells)
        assert "CIFAR-10" in text
        assert text in page


def test_the_requests_of_the_guide_to_serving_are_answered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30)).save("frame.jpg")
    (command,) = (block for block in blocks("docs/serve.md", "sh") if block.startswith("curl"))
    (shown,) = blocks("docs/serve.md", "json")
    (example,) = blocks("docs/serve.md", "python")
    with closing(Site(options={**OPTIONS, "guard": True})) as site:
        words = shlex.split(command.replace("127.0.0.1:8000", f"127.0.0.1:{site.port}"))
        said = subprocess.run(words, capture_output=True, check=True).stdout
        answer, expected = json.loads(said), json.loads(shown)
        assert answer.keys() == expected.keys()
        assert answer["health"].keys() == expected["health"].keys()
        example = example.replace("127.0.0.1:8000", f"127.0.0.1:{site.port}")
        exec(example.replace("vit_tiny_patch16_224", "tiny"), names := {})
        names["client"].close()
    assert "(1, 6) {'stream': 'cam-1'" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries
def test_the_pipeline_of_the_guide_adapts():
    pipeline, *_ = blocks("docs/integrations.md", "python")
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(pipeline, names)
        images = [
            Image.fromarray(np.random.default_rng(n).integers(0, 256, (40, 50, 3), np.uint8))
            for n in range(3)
        ]
    answers = names["classify"](images)
    assert [len(answer) for answer in answers] == [5, 5, 5]
    assert answers[0][0]["score"] >= answers[0][1]["score"]
    assert names["classify"].adapter.totals.samples == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_lightning_module_of_the_guide_adapts(tmp_path, monkeypatch):
    pytest.importorskip("lightning", reason="pip install lightning")
    monkeypatch.chdir(tmp_path)
    _, module, test, *_ = blocks("docs/integrations.md", "python")
    names: dict[str, Any] = {}
    exec(module, names)
    model = dab.testing.nets.net("layernorm")
    batches = [(images, torch.zeros(len(images))) for images in dab.testing.nets.stream()]
    loader = torch.utils.data.DataLoader(batches, batch_size=None)
    kept: list[Any] = []
    exec(
        test.replace("Adapting(model)", "keep(Adapting(model))"),
        {**names, "model": model, "loader": loader, "keep": lambda m: kept.append(m) or m},
    )
    assert kept[0].adapter.totals.calls == len(batches)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_own_generator")
def test_the_exported_models_of_the_guide_answer_alike(tmp_path, monkeypatch):
    import onnx.reference

    monkeypatch.chdir(tmp_path)
    *_, export, resume = blocks("docs/integrations.md", "python")
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    exec(export, names)
    images = torch.rand(5, 3, 32, 32)
    with torch.no_grad():
        expected = names["model"](images)
    loaded = torch.export.load("adapted.pt2").module()
    assert torch.allclose(loaded(images), expected, atol=1e-4)
    (logits,) = onnx.reference.ReferenceEvaluator("adapted.onnx").run(
        None, {"images": images.numpy()}
    )
    assert np.allclose(logits, expected, atol=1e-4)
    source = names["zoo"].load("glyphs")
    assert not torch.equal(source(images), expected)
    adapter = dab.create("dab", source, capacity=16)
    adapter(images)
    adapter.save(tmp_path / "streams" / "cam-1.pt")
    exec(resume, names)
    assert names["adapter"].totals.samples == 5
