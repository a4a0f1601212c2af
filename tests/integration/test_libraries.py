"""torchvision beside a torch that its compiled operators do not fit, each time in a new process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dab.models.libraries import library


def python(script: str, *paths: Path) -> str:
    prelude = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    result = subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


REPORT = """
from dab.models import libraries
found = libraries.library({name!r})
print(found.__name__, libraries._declare_operators.cache_info().currsize)
"""

DEFINED = """
import torch
mine = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    mine.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


# As torchvision does, whether or not its compiled operators could be loaded.
DESCRIBED = """
import torch
torch.library.register_fake("torchvision::nms")(lambda dets, scores, iou_threshold: scores)
torch.library.register_fake("torchvision::qnms")(lambda dets, scores, iou_threshold: scores)
"""


@pytest.mark.parametrize("name", ["torchvision", "timm", "transformers"])
def test_a_library_is_imported_in_a_new_process(name):
    script = REPORT.format(name=name) + "import torchvision; print(torchvision.models.resnet18)"
    assert python(script).startswith(f"{name} ")


def test_operators_that_could_not_be_loaded_are_declared(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(DESCRIBED)
    assert python(REPORT.format(name="torchvision"), tmp_path) == "torchvision 1\n"


def test_operators_that_are_declared_already_are_left_alone():
    assert python(DEFINED + REPORT.format(name="torchvision")) == "torchvision 0\n"


def test_a_torchvision_with_its_operators_is_left_alone(tmp_path):
    """A package in its place that has loaded operators, as a build that fits does."""
    (tmp_path / "torchvision").mkdir()
    called = "print(torch.ops.torchvision.nms.default._schema)\n"
    (tmp_path / "torchvision" / "__init__.py").write_text(DEFINED + called)
    schema, report = python(REPORT.format(name="torchvision"), tmp_path).splitlines()
    assert schema.startswith("torchvision::nms(")
    assert report == "torchvision 0"


def test_a_torchvision_that_is_broken_otherwise_is_an_import_error(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('out of order')")
    script = REPORT.format(name="torchvision").replace("found =", "try:\n    found =")
    script = script.replace("\nprint(", "\nexcept ImportError as error:\n    print(error)\n#")
    assert python(script, tmp_path) == "cannot import torchvision: out of order\n"


@pytest.mark.parametrize(
    ("name", "extra"), [("torchvision", "torchvision"), ("timm", "timm"), ("transformers", "hf")]
)
def test_a_missing_library_names_its_extra(monkeypatch, name, extra):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{name} is not installed: .*dab-tta\[{extra}\]"):
        library(name)
