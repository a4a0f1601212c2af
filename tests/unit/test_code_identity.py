"""Which code a run's identity covers: every module of the package is touched in turn."""

from __future__ import annotations

import shutil
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import dab
from dab.benchmark.results.code import code_fingerprint, modules_of, own_code
from dab.data.corrupted_images import CorruptedImages
from dab.data.datasets.cifar10 import CIFAR10
from dab.data.datasets.cifar100 import CIFAR100
from dab.data.datasets.cifar_c import CIFARC
from dab.data.datasets.folder import FolderImages
from dab.data.datasets.glyphs import Glyphs
from dab.data.datasets.gtsrb import GTSRB
from dab.data.images import Subset
from dab.models.classifier import Classifier
from dab.models.convnet import ConvNet
from dab.models.resnet import ResNet
from dab.models.vit import ViT
from dab.registry import METHODS
from dab.utils.imports import import_own

PACKAGE = Path(dab.__file__).parent

HOMES = {name: dab.method(name).__module__ for name in dab.methods()}
BUILT_IN = [name for name, module in HOMES.items() if module.startswith("dab.methods.")]

# The classes that the runs to try are made of: each method on glyphs, and other data sets.
RUNS: dict[str, set[type]] = {
    **{name: {dab.method(name), ViT, CorruptedImages, Glyphs} for name in BUILT_IN},
    "on cifar10": {dab.method("tent"), ViT, Subset, CorruptedImages, CIFAR10},
    "on cifar100": {dab.method("tent"), ViT, CorruptedImages, CIFAR100},
    "on gtsrb": {dab.method("tent"), Classifier, ConvNet, CorruptedImages, GTSRB},
    "on cifar10-c": {dab.method("tent"), ResNet, CIFARC},
    "on a folder": {dab.method("tent"), Classifier, FolderImages},
}
EVERY = set(RUNS)
DECODED = {"on a folder", "on gtsrb"}
CORRUPTED = EVERY - {"on a folder", "on cifar10-c"}
TENT = {"tent", *EVERY.difference(BUILT_IN)}
AUGMENTING = {"adacontrast", "cmf", "cotta", "deyo", "memo", "roid", "rotta"}

# Every module has its place in these two tables. A new one: can it change a number, and whose?
CHANGES: dict[str, set[str]] = {
    "dab.adapter": EVERY,
    "dab.common": EVERY,
    "dab.registry": EVERY,
    "dab.guard": EVERY,
    **{f"dab.guard.{name}": EVERY for name in ("calibration", "decision", "guard", "health")},
    **{f"dab.guard.{name}": EVERY for name in ("probe", "recovery", "references", "risk")},
    **{f"dab.guard.{name}": EVERY for name in ("signals", "snapshots")},
    "dab.augmentations": AUGMENTING,
    "dab.augmentations.color": AUGMENTING,
    "dab.augmentations.geometry": AUGMENTING,
    "dab.augmentations.views": AUGMENTING,
    "dab.benchmark.compute": EVERY,
    "dab.benchmark.results.errors": EVERY,
    "dab.benchmark.running.evaluation": EVERY,
    "dab.buffers": EVERY,
    "dab.buffers.balanced": EVERY,
    "dab.buffers.budget": EVERY,
    "dab.buffers.buffer": EVERY,
    "dab.buffers.cstu": EVERY,
    "dab.buffers.pbrs": EVERY,
    "dab.buffers.storage": EVERY,
    "dab.buffers.trigger": EVERY,
    "dab.data.cache": CORRUPTED,
    "dab.data.corrupted_images": CORRUPTED,
    "dab.data.corruptions": CORRUPTED,
    "dab.data.corruptions.blur": CORRUPTED,
    "dab.data.corruptions.color": CORRUPTED,
    "dab.data.corruptions.digital": CORRUPTED,
    "dab.data.corruptions.filters": CORRUPTED,
    "dab.data.corruptions.noise": CORRUPTED,
    "dab.data.corruptions.pixels": CORRUPTED,
    "dab.data.corruptions.registry": CORRUPTED,
    "dab.data.corruptions.textures": CORRUPTED,
    "dab.data.corruptions.weather": CORRUPTED,
    "dab.data.datasets.cifar10": {"on cifar10"},
    "dab.data.datasets.cifar100": {"on cifar100"},
    "dab.data.datasets.cifar_batches": {"on cifar10", "on cifar100", "on cifar10-c"},
    "dab.data.datasets.cifar_c": {"on cifar10-c"},
    "dab.data.datasets.folder": DECODED,
    "dab.data.datasets.glyphs": set(BUILT_IN),
    "dab.data.datasets.gtsrb": {"on gtsrb"},
    "dab.data.decoding": DECODED,
    "dab.data.images": EVERY,
    "dab.data.transform": DECODED,
    # A method counts for its own runs; here are those that others build on.
    **{module: {name} for name, module in HOMES.items() if name in BUILT_IN},
    "dab.methods.dab": {"dab", "sequence_dab"},
    "dab.methods.eata": {"eata", "rdumb"},
    "dab.methods.periodic": {"note", "rotta"},
    "dab.methods.roid": {"cmf", "roid"},
    "dab.methods.source": {"lame", "norm", "source", "t3a"},
    "dab.methods.tent": TENT,
    "dab.models.classifier": {"on a folder", "on gtsrb"},
    "dab.models.convnet": {"on gtsrb"},
    "dab.models.resnet": {"on cifar10-c"},
    "dab.models.vit": CORRUPTED - {"on gtsrb"},
    "dab.outputs": EVERY,
    "dab.outputs.batch_prior": EVERY,
    "dab.outputs.causal_prior": EVERY,
    "dab.outputs.lame": EVERY,
    "dab.outputs.markov": EVERY,
    "dab.outputs.output": EVERY,
    "dab.parts.batch_norm": EVERY,
    "dab.parts.borrow": EVERY,
    "dab.parts.ema": EVERY,
    "dab.parts.features": EVERY,
    "dab.parts.functional": EVERY,
    "dab.parts.inputs": EVERY,
    "dab.parts.layers": EVERY,
    "dab.parts.network": EVERY,
    "dab.parts.named_tensors": {"eata", "rdumb"},
    "dab.parts.normalization": EVERY,
    "dab.parts.optimizers": EVERY,
    "dab.parts.options": EVERY,
    "dab.parts.parameters": EVERY,
    "dab.parts.ring_buffer": EVERY,
    "dab.parts.shift": {"sequence_dab"},
    "dab.parts.step": EVERY,
    "dab.parts.teacher": {"adacontrast", "cmf", "cotta", "rotta"},
    "dab.parts.transaction": EVERY,
    "dab.parts.validation": EVERY,
    "dab.streams": EVERY,
    "dab.streams.orders": EVERY,
    "dab.streams.setting": EVERY,
    "dab.streams.shard": EVERY,
    "dab.streams.stream": EVERY,
}
CHANGES_NOTHING = [
    "dab",  # re-exports
    "dab.__main__",
    "dab.testing*",
    "dab.benchmark",
    *(f"dab.benchmark.{name}" for name in ("cell", "estimate", "grid", "suites")),  # on the card
    "dab.benchmark.engines*",
    "dab.benchmark.tasks*",  # images and weights are on the card
    "dab.benchmark.results",
    *(f"dab.benchmark.results.{name}" for name in ("code", "identity", "published", "result")),
    *(f"dab.benchmark.results.{name}" for name in ("shards", "summary", "tables")),
    "dab.benchmark.running",
    *(f"dab.benchmark.running.{name}" for name in ("checkpoint", "claims", "interrupts")),
    *(f"dab.benchmark.running.{name}" for name in ("journal", "memory", "progress_file")),
    *(f"dab.benchmark.running.{name}" for name in ("recorder", "run")),
    "dab.benchmark.running.loggers*",
    "dab.cli*",
    "dab.fleet*",  # no run has more than one stream
    "dab.data",
    *(f"dab.data.{name}" for name in ("errors", "make_imagenet_c", "verify")),
    "dab.data.datasets",
    "dab.data.datasets.imagenet*",  # the list of images is on the card
    "dab.methods",  # registers
    "dab.models",
    # What loads and trains models: their weights and preprocessing are on the card.
    *(f"dab.models.{name}" for name in ("checkpoints", "libraries", "lite0", "loading", "zoo")),
    "dab.models.sources*",
    "dab.models.train*",
    "dab.parts",
    "dab.parts.locks",
    # A resumed run has the same numbers as one without interruption.
    *(f"dab.parts.{name}" for name in ("schema", "snapshot", "state", "state_file")),
    "dab.report*",
    "dab.serve*",
    "dab.utils*",
]


def modules() -> dict[str, Path]:
    """All modules of the package, with their files' paths below it."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(PACKAGE)
        words = [word for word in path.with_suffix("").parts if word != "__init__"]
        found[".".join(["dab", *words])] = path
    return found


def test_every_module_has_one_place():
    for name in modules():
        changes_nothing = any(fnmatchcase(name, pattern) for pattern in CHANGES_NOTHING)
        assert changes_nothing != (name in CHANGES), (
            f"put {name} into CHANGES or CHANGES_NOTHING: can it change the numbers of a run?"
        )
    assert CHANGES.keys() <= modules().keys()


def test_every_run_depends_on_the_modules_of_the_table_and_no_others():
    expected = {run: {name for name, runs in CHANGES.items() if run in runs} for run in RUNS}
    assert {run: modules_of(classes) for run, classes in RUNS.items()} == expected


@pytest.mark.slow
def test_touching_a_module_changes_the_runs_that_depend_on_it_and_no_others(tmp_path):
    """For each module, one run that depends on it and one that does not are tried."""
    package = tmp_path / "dab"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "weights"))
    before = {name: own_code(classes, package) for name, classes in RUNS.items()}
    assert before == {name: own_code(classes) for name, classes in RUNS.items()}
    wrong = []
    for number, (name, path) in enumerate(modules().items()):
        changing = CHANGES.get(name, set())
        text = (package / path).read_text()
        (package / path).write_text(f"{text}\ntouched = True\n")
        for runs in filter(None, (sorted(changing), sorted(EVERY - changing))):
            run = runs[number % len(runs)]
            if (own_code(RUNS[run], package) != before[run]) != (run in changing):
                wrong.append((name, run))
        (package / path).write_text(text)
    assert wrong == []
    for path in modules().values():  # all at once: none may count
        text = (package / path).read_text()
        assert not text or text.startswith('"""')
        edited = text.replace('"""', '"""Touched: ', 1)
        (package / path).write_text(f"# touched\n{edited}\n")
    assert {name: own_code(classes, package) for name, classes in RUNS.items()} == before


@pytest.mark.parametrize("kind", ["class", "def", "async def"])
def test_docstrings_comments_and_layout_do_not_count_but_other_texts_do(kind, tmp_path):
    file = tmp_path / f"own_{kind.replace(' ', '_')}.py"
    body = f"{kind} Inner():\n    {{doc}}\n    word = {{word}}\n\nclass Own: ..."
    file.write_text(body.format(doc='"""Before."""', word="'before'"))
    own = import_own(str(file)).Own
    before = own_code({own})
    file.write_text(body.format(doc='"""After."""  # why', word="(\n        'before'\n    )"))
    assert own_code({own}) == before
    file.write_text(body.format(doc='"""Before."""', word="'after'"))
    assert own_code({own}) != before


METHOD = """
import dab

@dab.register("mine")
class Own(dab.Adapter):
    paper = "Some paper, "
    paper += "{color}"
    color = {color}
    rate = {rate}

class Other:
    color = {other}
"""


@pytest.mark.parametrize(
    ("color", "rate", "other", "counts"), [(2, 1, 1, False), (1, 2, 1, True), (1, 1, 2, True)]
)
def test_what_a_method_says_about_itself_does_not_count(color, rate, other, counts, tmp_path):
    file = tmp_path / "own_method.py"
    with METHODS.scope():
        file.write_text(METHOD.format(color=1, rate=1, other=1))
        own = import_own(str(file)).Own
        before = own_code({own})
        file.write_text(METHOD.format(color=color, rate=rate, other=other))
        assert (own_code({own}) != before) == counts


def test_the_hash_is_made_once_per_process():
    classes = frozenset(RUNS["dab"])
    assert code_fingerprint(classes) == own_code(classes)
    hits = code_fingerprint.cache_info().hits
    code_fingerprint(classes)
    assert code_fingerprint.cache_info().hits == hits + 1


IMPORTS = {
    "at the top": ("from dab.parts.teacher import Teacher", True),
    "of the module": ("import dab.parts.teacher", True),
    "from the package": ("from dab.parts import teacher", True),
    "in a function": ("def later():\n    from dab.parts.teacher import Teacher", True),
    "in a condition": ("if True:\n    import dab.parts.teacher as t", True),
    "through another": ("from dab.methods import CoTTA", True),
    "through the root": ("import dab\nlater = lambda: dab.DAB", False),
    "for type checkers": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dab.parts.teacher",
        False,
    ),
    "in a text": ("'import dab.parts.teacher'", False),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_a_class_from_outside_counts_with_its_file_and_what_it_imports(name, tmp_path):
    text, imports_it = IMPORTS[name]
    file = tmp_path / f"own_{name.replace(' ', '_')}.py"
    file.write_text(f"{text}\nclass Own: ...\n")
    own = import_own(str(file)).Own
    found = modules_of({own})
    assert ("dab.parts.teacher" in found) == imports_it
    assert "dab.methods.tent" not in found  # registering all methods is not using them
    assert ("dab.methods.dab" in found) == (name == "through the root")
    before = own_code({own})
    file.write_text(f"{text}\nclass Own: value = 1\n")
    assert own_code({own}) != before


def test_relative_imports_are_followed(tmp_path):
    package = tmp_path / "dab"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "weights"))
    tent = package / "methods" / "tent.py"
    assert "dab.methods.roid" not in modules_of(RUNS["tent"], package)
    tent.write_text(f"from .roid import ROID\nfrom ..parts import teacher\n{tent.read_text()}")
    found = modules_of(RUNS["tent"], package)
    assert {"dab.methods.roid", "dab.parts.teacher"} <= found


def test_libraries_do_not_count():
    import torch

    assert own_code({torch.nn.Linear, dict}) == own_code(set())
    assert "torch" in sys.modules
