"""The suites that reproduce published tables of small models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dab.benchmark import suite
from dab.benchmark.results.published import column, published
from dab.benchmark.tasks.registry import TaskRecipe
from dab.benchmark.tasks.shipped import published_column
from dab.cli import main
from tests.support.benchmark_task import tiny_task

NUMBERS = {
    "source": 32.7,
    "tent": 87.6,
    "eata": 40.8,
    "sar": 37.1,
    "cotta": 44.5,
    "rotta": 33.7,
    "adacontrast": 30.5,
    "lame": 11.3,
    "roid": 15.9,
}


def test_every_cell_of_the_published_table_is_compared_with_its_number():
    task = replace(tiny_task(), published_as="cifar10_c")
    found = {}
    for cell in suite("cifar10-c-published").cells():
        assert column(cell, task) == "cifar10_c"
        assert column(replace(cell, batch_size=64), task) is None
        number = published(
            "correlated", cell.method, cell.all_options().get("capacity"), "cifar10_c"
        )
        assert number is not None
        assert number.starred
        found[cell.method] = number.error
    assert found == NUMBERS


def test_other_settings_than_the_published_are_not_compared():
    task = replace(tiny_task(), published_as="cifar10_c")
    cells = {cell.method: cell for cell in suite("cifar10-c-published").cells()}
    for method in ("tent", "eata", "cotta", "lame", "roid"):
        assert column(replace(cells[method], options={}), task) is None
    for method in ("sar", "rotta", "adacontrast"):
        assert column(replace(cells[method], options={"lr": 1e-5}), task) is None
    ours = [cell for cell in suite("cifar10-c-ours").cells() if not cell.is_source]
    compared = [
        published("correlated", cell.method, cell.all_options().get("capacity"), column(cell, task))
        for cell in ours
    ]
    assert compared == [None] * len(ours)


@pytest.mark.parametrize(
    ("model", "samples", "comparable"),
    [("dab/resnet26_gn", None, True), ("dab/resnet26_gn", 9, False), ("dab/cifar10", None, False)],
)
def test_only_the_published_model_on_all_images_is_compared(model, samples, comparable):
    recipe = TaskRecipe("cifar10", samples=samples)
    assert published_column(recipe, {"name": model}) == ("cifar10_c" if comparable else None)


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("cifar10-c-published", "use a file with dab/resnet26_gn@FILE"),
        ("cifar10-c-ours", "use a file with dab/resnet26_gn@FILE"),
        ("cifar10-c-published-files", "cifar10-c is read from disk: name its folder with --root"),
        ("deit-tiny", "imagenet-c is read from disk: name its folder with --root"),
    ],
)
def test_a_suite_says_what_it_needs(name, lacking, tmp_path, capsys):
    assert main(["bench", "--suite", name, "--out", str(tmp_path)]) != 0
    assert lacking in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
