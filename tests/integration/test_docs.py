"""What the documents show is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.cli import parser
from dab.cli.bench import chosen_grid
from dab.parts.functional import entropy
from dab.parts.layers import norm_parameters
from tests.support.nets import net, stream

ROOT = Path(__file__).parent.parent.parent


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def test_the_example_of_the_readme_runs():
    (example,) = blocks("README.md", "python")
    names = {"model": net("layernorm"), "stream": stream()}
    exec(example, names)
    assert names["adapter"].totals.calls == len(stream())


def test_the_make_targets_of_the_readme_exist():
    commands, *_ = blocks("README.md", "sh")
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", commands, re.MULTILINE)
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_model_of_the_guide_adapts_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in blocks("docs/own_model.md", "python"):
        exec(example, names)
    assert "Step(samples=32" in capsys.readouterr().out
    assert names["adapter"].totals.calls == 20
    assert names["model"] is names["adapter"].model


def test_the_quickstart_begins_as_the_readme():
    assert blocks("docs/index.md", "python") == blocks("README.md", "python")


def test_every_method_has_its_equation():
    text = (ROOT / "docs/methods.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert sorted(sections) == [name for name in dab.methods() if name in sections]
    assert set(sections) >= {"source", "tent", "dab", "lame"}
    assert [name for name, part in sections.items() if "```math" not in part] == ["source"]


NOTEBOOKS = {
    "own_model": ["63 classes in a buffer of 64", "identical to the bit: True"],
    "demo": ["### glyphs, correlated", "glyphs, correlated | 3 domains, 400 images each"],
}


@pytest.mark.filterwarnings("ignore")  # of what runs notebooks, not of what is in them
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_notebooks_run(name, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    book = nbformat.read(ROOT / f"docs/notebooks/{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)  # they are made, not kept
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=300, resources=resources).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    printed = "".join(output.get("text", "") for output in outputs)
    assert all(line in printed for line in NOTEBOOKS[name]), printed
    errors = dict(re.findall(r"^(\w+):? ([\d.]+) %", printed, re.MULTILINE))
    assert float(errors["dab"]) < float(errors["source"]) - 5


@pytest.mark.parametrize("document", ["README.md", *map(str, ROOT.glob("docs/*.md"))])
def test_the_commands_of_the_documents_are_right(document):
    for block in blocks(document, "sh"):
        for line in re.findall(r"^dab .*", block.replace("\\\n", ""), re.MULTILINE):
            # A store that is always there, in the place of one that needs a package of its own.
            words = shlex.split(line.replace("s3://", "memory://"), comments=True)
            chosen = parser().parse_args(words[1:])
            if chosen.command == "bench":
                assert chosen.imports or chosen_grid(chosen).cells()


def test_the_task_of_the_benchmark_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "cache"))
    (example,) = blocks("docs/benchmark.md", "python")
    before = torch.get_rng_state()  # its model is seeded globally
    exec(example, {})
    torch.set_rng_state(before)
    assert "{'fog': " in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:the model has .* BatchNorm")
def test_the_examples_of_the_guide_to_models_run(tmp_path):
    use, own = blocks("docs/models.md", "python")
    exec(use, {})
    (tmp_path / "mine.py").write_text(own)
    model, transform, card = dab.load_model(f"{tmp_path}/mine.py:load")
    assert (card["classes"], transform.crop) == (10, 32)
    assert dab.create("tent", model)(torch.rand(2, 3, 32, 32)).shape == (2, 10)


SITES = {
    "as it is": ("", 0, "Documentation built"),
    "a page that is not there": ("[gone](nowhere.md)", 1, "contains a link 'nowhere.md'"),
    "a part that is not there": ("[gone](api.md#nothing)", 1, "does not contain an anchor"),
}


@pytest.mark.parametrize("change", SITES)
def test_a_link_that_leads_nowhere_fails_the_site(change, tmp_path):
    added, status, said = SITES[change]
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "src").symlink_to(ROOT / "src")
    page = tmp_path / "docs" / "costs.md"
    page.write_text(f"{page.read_text()}\n{added}\n")
    (command,) = re.findall(r"mkdocs (build .*)", (ROOT / "Makefile").read_text())
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (built.returncode, said in built.stderr) == (status, True), built.stderr


def test_every_relative_link_leads_somewhere():
    for document in ROOT.glob("**/*.md"):
        if not document.relative_to(ROOT).parts[0].startswith("."):
            for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
                assert (document.parent / target).exists(), (document, target)


def test_every_method_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert [name for name in dab.methods() if f"| `{name}` |" not in readme] == []


def test_the_method_of_the_contributing_guide_works():
    (example,) = blocks("CONTRIBUTING.md", "python")
    names = {
        **{"Adapter": dab.Adapter, "nn": nn, "partial": partial, "torch": torch, "Tensor": Tensor},
        # Not the real registry, which the contract suite runs over.
        **{"register": lambda name: lambda cls: cls, "entropy": entropy},
        "norm_parameters": norm_parameters,
    }
    exec(example, names)
    adapter = names["Mine"](net("layernorm"))
    for images in stream():
        adapter(images)
    assert adapter.totals.updates == len(stream())
