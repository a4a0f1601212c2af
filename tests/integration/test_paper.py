"""The paper's own benchmark: its cells, what they take, and the right source model."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dab.benchmark import Cell, Task, TaskRecipe, results
from dab.benchmark.results.published import column, published, source_mismatch
from dab.benchmark.running.run import stream_of
from dab.benchmark.tasks import TASKS, TaskFactory, register_task, task_factory
from dab.benchmark.tasks.imagenet import ImageNetC
from dab.benchmark.tasks.on_disk import OnDisk, OnDiskTask
from dab.cli import bench, main, parser
from dab.data.corruptions import CORRUPTIONS
from dab.data.datasets.imagenet import DATA_SETS, load
from dab.data.datasets.imagenet_classes import D109, INDEX, WNIDS
from dab.data.transform import Transform
from dab.models.loading import load_model
from dab.streams import Setting
from tests.support.benchmark_task import tiny_task
from tests.support.nets import imagenet_net
from tests.support.pictures import jpeg
from tests.support.results import made_up

DATA = ("imagenet-c", "imagenet-r", "imagenet-sketch", "imagenet-d109")
MODEL = "tests.support.nets:imagenet_net"
SHOWN = WNIDS[5:1000:150]


def cells(*options: str):
    chosen = parser().parse_args(["bench", "--suite", "paper", *options])
    return bench.chosen_grid(chosen).cells()


def test_the_suite_is_exactly_the_two_tables():
    text = (resources.files("dab.benchmark.results") / "published.csv").read_text()
    expected = [
        (row["setting"], row["method"], row["buffer"] or None, data, seed)
        for row in csv.DictReader(text.splitlines())
        if row["source"] == "paper"
        for data in DATA
        for seed in range(5)
    ]
    found = [
        (str(cell.setting), cell.method, size_of(cell), cell.data, cell.seed) for cell in cells()
    ]
    assert len(found) == 500
    assert sorted(found, key=str) == sorted(expected, key=str)


def size_of(cell) -> str | None:
    capacity = cell.all_options().get("capacity")
    return None if capacity is None else str(capacity)


def test_every_cell_of_the_suite_has_the_published_options_but_for_sizes():
    for cell in cells("--seeds", "0"):
        if cell.method == "adacontrast":  # images of ImageNet-C are cropped already
            assert cell.options == ({} if cell.data == "imagenet-c" else {"crop": True})
            continue
        assert set(cell.options) <= {"capacity", "update_every"}
        if "update_every" in cell.options:
            assert cell.options["update_every"] == cell.options["capacity"]


def test_a_part_of_the_suite_may_be_chosen():
    chosen = cells("--data", "imagenet-r", "--setting", "correlated", "--seeds", "1")
    assert {(cell.data, str(cell.setting), cell.seed) for cell in chosen} == {
        ("imagenet-r", "correlated", 1)
    }
    assert len(chosen) == 15


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ("--data glyphs", "the suite 'paper' is for --data imagenet-c imagenet-r"),
        ("--setting mixed", "no methods for mixed on imagenet-c, only for: continual, correlated"),
    ],
)
def test_what_is_not_of_the_suite_is_refused(options, culprit, capsys):
    assert main(["bench", "--suite", "paper", *options.split()]) == 2
    assert culprit in capsys.readouterr().err


# A source model that is not the one of the paper


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("setting", ["continual", "correlated"])
@pytest.mark.parametrize("off", [-1.1, -0.9, 0.0, 0.9, 1.1])
def test_a_source_error_that_is_off_is_said(data, setting, off):
    figure = published(setting, "source", None, data.replace("-", "_"))
    error = figure.error + off
    doubt = source_mismatch(made_up("source", [error, error], data=data, setting=setting))
    assert (doubt is not None) == (abs(off) > 1)
    if doubt:
        assert f"{error:.1f} %" in doubt
        assert f"the published error is {figure.error} %" in doubt
        assert "another mean" in doubt


def test_only_the_source_model_on_the_papers_data_is_suspected():
    assert source_mismatch(made_up("tent", [1.0, 1.0])) is None
    assert source_mismatch(made_up("source", [1.0, 1.0], data="glyphs")) is None


# Data sets in tiny trees, laid out as the real ones


def plant(root: Path, folders: list[str], count: int = 4) -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for number in range(count):
            seed = sum(map(ord, folder)) * 10 + number
            color = tuple(np.random.default_rng(seed).integers(0, 256, 3).tolist())
            image = Image.new("RGB", (20, 16), color)  # a tiny net tells these apart
            (root / folder / f"{number}.JPEG").write_bytes(jpeg(image))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few images of each data set."""
    root = tmp_path_factory.mktemp("data")
    plant(root / "ImageNet-C", [f"{name}/5/{wnid}" for name in CORRUPTIONS for wnid in SHOWN])
    plant(root / "imagenet-r", list(SHOWN))
    plant(root / "sketch", list(SHOWN))
    for domain in ("clipart", "infograph", "painting", "real", "sketch"):
        plant(root / "domainnet" / domain, ["bed", "couch", "zebra"])
    return root


def run_on(root: Path, out: Path, *options: str) -> int:
    """A part of the suite, with a tiny net and few images."""
    model = ["--model", MODEL, "--partial", "--root", str(root)]
    return main(["bench", *model, "--out", str(out), "--workers", "0", *options])


def test_every_data_set_runs_in_both_settings(root, tmp_path, capsys):
    methods = ["--method", "tent", "--method", "dab capacity=4 batch_size=4"]
    suite = ["--suite", "paper", "--seeds", "0", "--batch-size", "8"]
    assert run_on(root, tmp_path, *suite, *methods) == 0
    found = {(r.card.data.name, r.card.setting, r.card.method): r for r in results(tmp_path)}
    assert len(found) == 4 * 2 * 3
    classes = {"imagenet-c": 1000, "imagenet-r": 7, "imagenet-sketch": 1000, "imagenet-d109": 109}
    domains = {"imagenet-c": 15, "imagenet-d109": 5}
    for (data, _, _), result in found.items():
        assert result.card.model.details["classes"] == classes[data]
        assert len(result.errors) == domains.get(data, 1)
        assert result.card.published_as is None  # these are not the published images
    assert "published" not in capsys.readouterr().out


@pytest.mark.parametrize("data", DATA)
def test_predictions_are_those_of_a_plain_loop(data, root, tmp_path):
    """One image at a time, with logits picked by hand; whichever order they are shown in."""
    assert run_on(root, tmp_path, "--data", data) == 0
    (result,) = results(tmp_path)
    found = np.load(tmp_path / result.card.run_id / "trace.npz")["predictions"]
    model, transform = imagenet_net()
    selected = {
        "imagenet-r": [INDEX[wnid] for wnid in SHOWN],
        "imagenet-d109": [shared.logit for shared in D109],
    }.get(data, list(range(1000)))
    start, errors = 0, {}
    for name, (images,) in load(data, root, transform, partial=True).domains.items():
        expected = []
        for index in range(len(images)):
            pixels = torch.from_numpy(images.batch([index])).permute(0, 3, 1, 2) / 255
            with torch.no_grad():
                logits = model.eval()(pixels)[0]
            expected.append(int(torch.stack([logits[number] for number in selected]).argmax()))
        assert sorted(found[start : start + len(images)].tolist()) == sorted(expected)
        start += len(images)
        errors[name] = 100 * float(np.mean(np.array(expected) != images.labels))
    assert start == len(found)
    assert result.errors == pytest.approx(errors)
    assert len(np.unique(found)) > 1  # or it would not matter what is shown


def test_images_are_chosen_from_all_classes(root):
    data = OnDisk("imagenet-sketch", root, Transform(16, 16), samples=7, partial=True)
    (domain,) = data.domains(CORRUPTIONS, 5, Setting())
    (part,) = domain.parts
    assert part.labels.tolist() == [INDEX[wnid] for wnid in SHOWN]
    assert part.fingerprint != data.load()["imagenet-sketch"][0].fingerprint
    with pytest.raises(ValueError, match="cannot take 29 of 28 images"):
        replace(data, samples=29).domains(CORRUPTIONS, 5, Setting())


def test_a_list_chooses_the_images_unless_they_are_correlated(root, tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text(f"{SHOWN[1]}/2.JPEG\n{SHOWN[0]}/3.JPEG\n")
    data = ImageNetC("imagenet-c", root, Transform(16, 16), image_list=listed, partial=True)
    (domain,) = data.domains(["fog"], 5, Setting.parse("continual"))
    assert domain.parts[0].labels.tolist() == [INDEX[SHOWN[1]], INDEX[SHOWN[0]]]
    (domain,) = data.domains(["fog"], 5, Setting.parse("correlated"))
    assert len(domain.parts[0]) == 28


def test_source_images_come_from_a_folder(root):
    recipe = TaskRecipe("imagenet-r", root=root, model=MODEL, partial=True)
    assert recipe.create().source_images is None
    images = replace(recipe, source_images=root / "sketch").create().source_images()
    assert images.shape == (28, 3, 8, 8)
    assert 0 <= images.min() < images.max() <= 1


def test_a_folder_of_ones_own_runs(tmp_path):
    plant(tmp_path / "photos", ["cat", "dog"])
    own = ["run", "tent", "--data", "folder", "--root", str(tmp_path / "photos")]
    assert main([*own, "--model", MODEL, "--out", str(tmp_path / "out")]) == 0
    assert {tuple(result.errors) for result in results(tmp_path / "out")} == {("photos",)}


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ("--data imagenet-r", "imagenet-r is read from disk: name its folder with --root"),
        ("--data imagenet-r --root nowhere", "there is no folder "),
        ("--data imagenet-r --root {root}", "wrong counts: 7 classes, expected 200"),
        ("--data imagenet-r --root {root} --partial --corruptions fog", "has no corruptions"),
        ("--data imagenet-r --root {root} --partial --severity 2", "or severities to choose from"),
        (
            "--data 'imagenet-r image_list=x' --root {root}",
            "unknown imagenet-r option 'image_list'; available: none",
        ),
        ("--data imagenet-r --root {root} --source-images nowhere", "there is no folder "),
        (
            "--data glyphs --partial",
            "--partial does not apply to glyphs, only to: folder, imagenet-c",
        ),
        (
            "--data glyphs",
            "glyphs has 100 classes, but tests.support.nets:imagenet_net returns 1000",
        ),
        ("--data imagenet-c --root {root} --partial --samples 29", "cannot take 29 of"),
        ("--data folder --root {root}/sketch --model tests.support.nets:few", "no function 'few'"),
    ],
)
def test_bad_data_is_one_error_before_anything_runs(options, culprit, root, tmp_path, capsys):
    arguments = ["--model", MODEL, *shlex.split(options.format(root=root))]
    arguments += ["--out", str(tmp_path / "r")]
    assert main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert culprit in captured.err
    assert not (tmp_path / "r").exists()


def test_more_classes_than_the_model_has_are_refused(tmp_path, capsys):
    plant(tmp_path / "photos", [f"class_{number}" for number in range(7)], count=1)
    (tmp_path / "six.py").write_text(
        "from tests.support.nets import net\n\ndef load():\n    return net('layernorm')\n"
    )
    arguments = ["--data", "folder", "--root", str(tmp_path / "photos")]
    assert main(["bench", *arguments, "--model", f"{tmp_path}/six.py:load"]) == 2
    assert "contains class index 6, but " in (error := capsys.readouterr().err)
    assert error.endswith("has 6 classes (0 to 5)\n")


def test_another_number_of_classes_than_imagenets_is_refused(root, tmp_path, capsys):
    loader = (
        "from tests.support.nets import net\n\ndef load():\n    return net('layernorm', 21843)\n"
    )
    (tmp_path / "more.py").write_text(loader)
    for data in DATA:
        arguments = ["--data", data, "--root", str(root), "--partial"]
        assert main(["bench", *arguments, "--model", f"{tmp_path}/more.py:load"]) == 2
        assert "ImageNet has 1000 classes, " in (error := capsys.readouterr().err)
        assert error.endswith("returns 21843\n")


def test_all_that_is_wrong_with_all_data_sets_is_said_at_once(root, tmp_path, capsys):
    arguments = ["--suite", "paper", "--setting", "correlated", "--model", MODEL]
    assert main(["bench", *arguments, "--root", str(root), "--out", str(tmp_path / "r")]) == 2
    error = capsys.readouterr().err
    assert all(f"{data} in " in error for data in DATA)


def test_a_recipe_sees_the_data_as_they_are(tmp_path):
    plant(tmp_path, ["cat", "dog"])
    recipe = TaskRecipe("folder", root=tmp_path, model=MODEL)
    cell = Cell("source", data="folder")
    before = stream_of(cell, recipe.create(), None)
    plant(tmp_path, ["eel"])
    after = stream_of(cell, recipe.create(), None)
    assert (before.samples, after.samples) == (8, 12)
    assert before.fingerprint != after.fingerprint


# Which figures may stand beside the published ones


RECIPE = TaskRecipe("imagenet-c", root=Path("data"))
PAPER_CARD = {
    "name": "torchvision/vit_b_16",
    "tag": "IMAGENET1K_V1",
    "preprocessing": {
        **{"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        **{"resize": 256, "crop": 224, "interpolation": "bilinear"},
    },
}


def _published_as(recipe: TaskRecipe, card: dict) -> str | None:
    return task_factory(recipe.name).published_as(recipe, card)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("weights", [{}, {"tag": "file", "sha256": "c867db91" + 56 * "0"}])
def test_all_of_the_data_with_the_papers_model_is_comparable(data, weights):
    recipe = replace(RECIPE, name=data)
    assert _published_as(recipe, PAPER_CARD | weights) == data.replace("-", "_")


OTHER_PIXELS = {"preprocessing": {**PAPER_CARD["preprocessing"], "resize": 224}}


@pytest.mark.parametrize(
    ("changes", "card"),
    [
        ({"samples": 100}, {}),
        ({"partial": True}, {}),
        ({"name": "folder"}, {}),
        ({}, {"name": "timm/vit_base_patch16_224"}),
        ({}, {"tag": "random, seed 0"}),
        ({}, {"tag": "file", "sha256": 64 * "0"}),
        ({}, OTHER_PIXELS),
    ],
)
def test_nothing_else_is_comparable(changes, card):
    assert _published_as(replace(RECIPE, **changes), PAPER_CARD | card) is None


def test_the_papers_model_has_the_papers_preprocessing():
    card = load_model("torchvision/vit_b_16@random").card
    assert card["preprocessing"] == PAPER_CARD["preprocessing"]
    assert card["name"] == PAPER_CARD["name"]


def test_only_the_published_list_is_comparable(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text(f"{SHOWN[1]}/2.JPEG\n")
    assert _published_as(replace(RECIPE, options={"image_list": listed}), PAPER_CARD) is None


@pytest.mark.parametrize(
    ("method", "options", "comparable"),
    [
        ("source", {}, True),
        ("source", {"output": "lame"}, False),
        ("tent", {}, True),
        ("tent", {"lr": 0.5}, False),
        ("dab", {"capacity": 4096}, True),
        ("dab", {"capacity": 64, "trigger": "any"}, False),
        ("note", {"capacity": 256, "update_every": 256}, True),
        ("note", {"capacity": 256, "update_every": 64}, True),
        ("note", {"capacity": 256, "update_every": 128}, False),
        ("eata", {}, False),  # without source images it is ETA
    ],
)
def test_only_the_published_options_are_comparable(method, options, comparable):
    task = replace(tiny_task(), published_as="imagenet_c", source_images=None)
    cell = Cell(method, options)
    assert column(cell, task) == ("imagenet_c" if comparable else None)
    assert column(replace(cell, severity=4), task) is None
    assert column(replace(cell, batch_size=32), task) is None
    assert column(replace(cell, corruptions=("fog",)), task) is None


def test_adacontrast_is_comparable_with_the_views_of_its_authors():
    for data, crop in (("imagenet_c", False), ("imagenet_r", True)):
        task = replace(tiny_task(), published_as=data)
        found = [column(Cell("adacontrast", {"crop": choice}), task) for choice in (crop, not crop)]
        assert found == [data, None]


def test_eata_is_comparable_with_source_images():
    task = replace(tiny_task(), published_as="imagenet_c")
    assert column(Cell("eata"), task) == "imagenet_c"


# What it takes


def test_the_names_on_disk_are_those_of_the_data_sets():
    assert {name for name in TASKS if issubclass(TASKS[name], OnDiskTask)} == set(DATA_SETS)


def test_the_published_sizes():
    sizes = {
        (data, setting): task_factory(data).count(
            Cell("dab", data=data, setting=Setting.parse(setting)), TaskRecipe(data)
        )
        for data in DATA
        for setting in ("continual", "correlated", "gradual")
    }
    assert sizes["imagenet-c", "continual"] == 15 * 5_000
    assert sizes["imagenet-c", "correlated"] == 15 * 50_000
    assert sizes["imagenet-c", "gradual"] == 15 * 9 * 5_000
    assert sizes["imagenet-r", "continual"] == sizes["imagenet-r", "correlated"] == 30_000
    assert sizes["imagenet-sketch", "correlated"] == 50_889
    assert sizes["imagenet-d109", "continual"] == 136_499


def test_a_dry_run_says_what_the_suite_takes_without_any_data(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--suite", "paper", "--dry-run", "--model", MODEL]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert ["dab", "4096", ", ".join(DATA), "0 1 2 3 4"] in rows
    rows = [row for row in rows if len(row) == 5]
    assert [row[:4] for row in rows] == [
        ["imagenet-c", "continual", "50", "3,750,000"],
        ["imagenet-c", "correlated", "75", "56,250,000"],
        ["imagenet-r", "continual", "50", "1,500,000"],
        ["imagenet-r", "correlated", "75", "2,250,000"],
        ["imagenet-sketch", "continual", "50", "2,544,450"],
        ["imagenet-sketch", "correlated", "75", "3,816,675"],
        ["imagenet-d109", "continual", "50", "6,824,950"],
        ["imagenet-d109", "correlated", "75", "10,237,425"],
        ["all", "", "500", "87,173,500"],
    ]
    forwards = [float(row[4].replace(",", "")) for row in rows]
    assert forwards[-1] == pytest.approx(sum(forwards[:-1]), abs=5)
    text = " ".join(lines)
    times = [re.search(rf"{name}: ([\d,.]+) (\w+) at [\d,.]+ images/s", text) for name in DATA]
    times.append(re.search(r"Total: about ([\d,.]+) (\w+)", text))
    units = {"hours": 1, "minutes": 1 / 60}
    numbers = [float(found[1].replace(",", "")) * units[found[2]] for found in times]
    assert numbers[-1] == pytest.approx(sum(numbers[:-1]), abs=0.5)
    assert numbers[-1] > 0
    assert list(tmp_path.iterdir()) == []
    few = ["--samples", "1000", "--data", "imagenet-c", "--setting", "correlated"]
    assert main(["bench", "--suite", "paper", "--dry-run", "--model", MODEL, *few]) == 0
    assert "1,125,000" in capsys.readouterr().out  # 75 runs of 15 times 1,000


def test_a_dry_run_counts_what_is_there(root, capsys):
    options = ["--root", str(root), "--partial", "--model", MODEL, "--data", "imagenet-c"]
    assert main(["bench", *options, "--dry-run", "--method", "tent", "--seeds", "0", "1"]) == 0
    # 15 corruptions, 7 classes, 4 images; source and TENT with two seeds
    assert re.search(r"imagenet-c │ correlated │ +4 │ +1,680 │ +2,688 ", capsys.readouterr().out)


@pytest.fixture
def own_tasks() -> Iterator[None]:
    """Data sets that are forgotten again."""
    with TASKS.scope():
        yield


@pytest.mark.usefixtures("own_tasks")
def test_a_source_model_that_is_off_is_called_so(monkeypatch, tmp_path, capsys, caplog):
    task = replace(tiny_task(), published_as="imagenet_c")

    @register_task("tiny-paper")
    class Published(TaskFactory):
        """The tiny task, as if it were the paper's."""

        def create(self, recipe: TaskRecipe) -> Task:
            return replace(task, name=self.name)

    monkeypatch.setenv("DAB_CACHE", str(tmp_path / "cache"))
    out = ["--out", str(tmp_path / "results")]
    assert main(["run", "tent", "--setting", "continual", "--data", "tiny-paper", *out]) == 0
    captured = capsys.readouterr()
    assert [record.getMessage()[:41] for record in caplog.records] == [
        "the source model's error on tiny-paper is"
    ]
    assert "WARNING: the source model's error on tiny-paper is " in captured.out
    assert " 60.2 " in captured.out  # the published figure stands beside
    assert (
        main(
            [
                "run",
                "tent",
                "--setting",
                "continual",
                "--data",
                "tiny-paper",
                "--severity",
                "3",
                *out,
            ]
        )
        == 0
    )
    captured = capsys.readouterr()
    assert "WARNING" not in captured.out
    assert len(caplog.records) == 1
    assert "published" not in captured.out
