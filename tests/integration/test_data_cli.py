"""`dab data`: checking data sets, and making ImageNet-C."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dab.benchmark.tasks import TASKS
from dab.cli import main, parser
from dab.data.corruptions import corrupt
from dab.data.datasets.imagenet import DATA_SETS
from dab.data.datasets.imagenet_classes import WNIDS
from dab.data.make_imagenet_c import Maker, at_published_size
from dab.utils.parallel import each
from tests.support.cli import help_of
from tests.support.pictures import jpeg, picture, plant

ROOT = Path(__file__).parent.parent.parent
TENCH, GOLDFISH, SHARK = WNIDS[:3]

QUICK = ["contrast", "jpeg_compression", "gaussian_noise"]  # corruptions that take little time


def files(root: Path) -> dict[str, bytes]:
    """All files below a root."""
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


@pytest.mark.parametrize("name", ["get", "check", "corrupt"])
def test_help_has_examples_that_are_right(name, capsys):
    _, _, examples = help_of(capsys, "data", name).partition("\nexamples:\n")
    lines = [line for line in examples.replace("\\\n", "").splitlines() if line.startswith("  dab")]
    assert lines
    for line in lines:
        command, *_ = line.strip().split("   ")
        chosen = parser().parse_args(shlex.split(line if "\\" in line else command)[1:])
        assert (chosen.command, chosen.part) == ("data", name)


# Checking


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A tree that is fine: more images than a process takes at once."""
    plant(tmp_path / "photos", *(f"{TENCH}/{number}.JPEG" for number in range(70)), width=48)
    plant(tmp_path / "photos", f"{SHARK}/a.JPEG", width=300)
    return tmp_path / "photos"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_check_prints_a_table_of_what_is_fine(photos, workers, capsys):
    assert main(["data", "check", "folder", "--root", str(photos), "--workers", workers]) == 0
    captured = capsys.readouterr()
    row = next(line for line in captured.out.splitlines() if "photos" in line and "71" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["photos", "71", "2"]
    assert captured.out.startswith(f"folder in {photos}\n")
    assert captured.err == ""


def test_check_prints_json_for_scripts(photos, capsys):
    command = ["data", "check", "folder", "--root", str(photos), "--workers", "0", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {
        "name": "folder",
        "root": str(photos),
        "complete": True,
        "domains": {"photos": {"images": 71, "classes": 2}},
    }


@pytest.mark.parametrize("workers", ["0", "2"])
def test_check_lists_what_cannot_be_read(photos, workers, capsys):
    whole = (photos / TENCH / "3.JPEG").read_bytes()
    (photos / TENCH / "3.JPEG").write_bytes(whole[: len(whole) // 2])
    (photos / TENCH / "69.JPEG").write_bytes(b"[bold]")
    command = ["data", "check", "folder", "--root", str(photos)]
    assert main([*command, "--workers", workers]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    third, last, end = captured.err.splitlines()
    assert third.startswith(f"{photos}/{TENCH}/3.JPEG: not a readable image (image file is trunc")
    assert last.startswith(f"{photos}/{TENCH}/69.JPEG: not a readable image (")
    assert end == f"dab: 2 images in {photos} cannot be read"
    assert main([*command, "--quick"]) == 0


def test_check_reports_what_is_missing_unless_told_otherwise(photos, capsys):
    command = ["data", "check", "imagenet-sketch", "--root", str(photos), "--workers", "0"]
    assert main(command) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dab: imagenet-sketch in {photos} is incomplete or wrong (")
    assert f"  998 missing folders: {GOLDFISH}, " in captured.err
    assert "  1 wrong counts: 71 images, expected 50,889" in captured.err
    assert main([*command, "--partial"]) == 0
    assert f"imagenet-sketch in {photos}, partial" in capsys.readouterr().out.splitlines()


def test_check_takes_a_list_corruptions_and_severities_of_imagenet_c(tmp_path, capsys):
    plant(tmp_path / "imagenet-c", f"fog/2/{TENCH}/a.JPEG", f"fog/3/{TENCH}/a.JPEG")
    (tmp_path / "list.txt").write_text(f"{TENCH}/a.JPEG\n")
    command = f"data check imagenet-c --root {tmp_path} --list {tmp_path / 'list.txt'} --workers 0"
    assert main([*command.split(), "--corruptions", "fog", "--severity", "2", "3"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "fog" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["fog", "2", "1"]
    assert main([*command.split(), "--corruptions", "fog", "--severity", "4"]) == 1
    assert "1 missing folders: fog/4" in capsys.readouterr().err
    other = ["data", "check", "folder", "--root", str(tmp_path), "--severity", "4"]
    assert main(other) == 2
    assert "--severity do not apply to folder: it has no corruptions" in capsys.readouterr().err


@pytest.mark.parametrize("name", DATA_SETS)
def test_check_knows_every_data_set(name, tmp_path, capsys):
    assert main(["data", "check", name, "--root", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err


def test_what_cannot_be_checked_or_downloaded_is_named(tmp_path, capsys):
    assert main(["data", "check", "glyphs", "--root", str(tmp_path)]) == 2
    assert "glyphs has no check: " in capsys.readouterr().err
    assert main(["data", "get", "glyphs"]) == 2
    assert "dab cannot download glyphs, only: cifar10" in capsys.readouterr().err
    assert main(["data", "check", "imagnet-r", "--root", str(tmp_path)]) == 2
    assert "unknown data 'imagnet-r'; did you mean 'imagenet-r'?" in capsys.readouterr().err


OWN = """
from dab.benchmark import register_task
from dab.benchmark.tasks.folder import FolderTask
from dab.data.datasets import imagenet
from dab.data.transform import Transform

@register_task("own")
class Own(FolderTask):
    can_download = True

    def download(self, root):
        return f"{root}: downloaded"

    def check(self, root, *, partial=False, **choice):
        return imagenet.load("folder", root, Transform(), partial=partial)
"""


def test_a_data_set_from_outside_can_be_downloaded_and_checked(photos, tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    own = ["own", "--import", str(tmp_path / "own.py"), "--root", str(photos)]
    with TASKS.scope():
        assert main(["data", "get", *own]) == 0
        assert capsys.readouterr().out == f"{photos}: downloaded\n"
        assert main(["data", "check", *own, "--workers", "0", "--partial"]) == 0
        assert "│ 71 " in capsys.readouterr().out


# Making


def corrupted(source: Path, target: Path, *options: str) -> int:
    command = ["data", "corrupt", "--from", str(source), "--to", str(target)]
    return main([*command, "--corruptions", *QUICK, *options])


@pytest.fixture
def val(tmp_path: Path) -> Path:
    plant(tmp_path / "val", f"{TENCH}/ILSVRC2012_val_00000001.JPEG", f"{SHARK}/b.JPEG", width=320)
    plant(tmp_path / "val", f"{TENCH}/c.JPEG")
    (tmp_path / "val" / SHARK / "d.png").write_bytes(png(picture(224, 224, 5)))
    return tmp_path / "val"


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


NAMES = {
    *(f"{TENCH}/ILSVRC2012_val_00000001.JPEG", f"{TENCH}/c.JPEG"),
    *(f"{SHARK}/b.JPEG", f"{SHARK}/d.JPEG"),
}


def test_a_tree_is_made_that_is_imagenet_c(val, tmp_path, capsys):
    assert corrupted(val, tmp_path / "c", "--severity", "3", "5", "--workers", "0") == 0
    assert capsys.readouterr().out == f"{tmp_path / 'c'}: 24 files made\n"
    assert files(tmp_path / "c").keys() == {
        f"{name}/{severity}/{path}" for name in QUICK for severity in (3, 5) for path in NAMES
    }
    for content in files(tmp_path / "c").values():
        with Image.open(io.BytesIO(content)) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (224, 224), "RGB")
    command = f"data check imagenet-c --root {tmp_path / 'c'} --severity 3 5 --partial --workers 0"
    assert main(command.split()) == 0


def test_a_picture_of_224_pixels_is_corrupted_as_it_is(val, tmp_path):
    assert corrupted(val, tmp_path / "c", "--workers", "0") == 0
    clean = np.array(picture(224, 224, 5))  # d.png has it without a loss
    expected = corrupt(clean, "contrast", 5, np.random.default_rng(0))  # this one draws nothing
    made = (tmp_path / "c" / "contrast" / "5" / SHARK / "d.JPEG").read_bytes()
    assert made == jpeg(Image.fromarray(expected), quality=85, optimize=True)


def test_other_pictures_are_resized_and_cropped_first(val, tmp_path):
    assert corrupted(val, tmp_path / "c", "--workers", "0") == 0
    with Image.open(val / SHARK / "b.JPEG") as image:
        clean = image.resize((365, 256), Image.Resampling.BILINEAR).crop((70, 16, 294, 240))
        found = at_published_size(np.array(image))
    assert np.abs(found.astype(int) - np.array(clean)).max() <= 2
    expected = corrupt(found, "contrast", 5, np.random.default_rng(0))
    made = (tmp_path / "c" / "contrast" / "5" / SHARK / "b.JPEG").read_bytes()
    assert made == jpeg(Image.fromarray(expected), quality=85, optimize=True)


def test_noise_differs_between_files_and_severities(tmp_path):
    gray = jpeg(Image.new("RGB", (224, 224), (128, 128, 128)))
    for name in "ab":
        (tmp_path / "val" / TENCH).mkdir(parents=True, exist_ok=True)
        (tmp_path / "val" / TENCH / f"{name}.JPEG").write_bytes(gray)
    assert (
        corrupted(tmp_path / "val", tmp_path / "c", "--severity", "4", "5", "--workers", "0") == 0
    )
    noisy = [content for name, content in files(tmp_path / "c").items() if "noise" in name]
    assert len(set(noisy)) == 4


def test_the_number_of_workers_does_not_show(val, tmp_path):
    for workers in ("0", "1", "2"):
        assert corrupted(val, tmp_path / workers, "--workers", workers) == 0
    assert files(tmp_path / "0") == files(tmp_path / "1") == files(tmp_path / "2")


def test_what_is_there_is_not_made_again(val, tmp_path, capsys):
    target = tmp_path / "c"
    assert corrupted(val, target, "--workers", "0") == 0
    before = files(target)
    lost = target / "contrast" / "5" / SHARK / "b.JPEG"
    lost.unlink()
    times = {file: file.stat().st_mtime_ns for file in target.rglob("*.JPEG")}
    part = lost.with_name(f"b.JPEG.{socket.gethostname()}.part")
    part.write_bytes(b"half of it")
    capsys.readouterr()
    assert corrupted(val, target, "--workers", "0") == 0
    assert capsys.readouterr().out == f"{target}: 1 files made\n"
    assert files(target) == before  # and so the half file is gone
    assert {file: file.stat().st_mtime_ns for file in times} == times


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    plant(tmp_path / "val", *(f"{wnid}/a.JPEG" for wnid in WNIDS[:30]))
    command = ["data", "corrupt", "--from", str(tmp_path / "val"), "--corruptions", *QUICK]
    command += ["--workers", "2", "--to"]
    target = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "dab", *command, str(target)], cwd=ROOT, start_new_session=True
    )
    while len(list(target.rglob("*.JPEG"))) < 10:
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    begun = {name: content for name, content in files(target).items() if name.endswith(".JPEG")}
    total = len(QUICK) * 30
    assert 10 <= len(begun) < total
    assert main([*command, str(target)]) == 0
    assert main([*command, str(tmp_path / "whole")]) == 0
    assert files(target) == files(tmp_path / "whole")
    assert len(files(target)) == total
    assert begun.items() <= files(target).items()


def test_a_bad_picture_is_named_and_the_others_are_made(val, tmp_path, capsys):
    (val / TENCH / "c.JPEG").write_bytes(b"scratched")
    assert corrupted(val, tmp_path / "c", "--workers", "2") == 1
    captured = capsys.readouterr()
    line, end = captured.err.splitlines()
    assert line.startswith(f"{val}/{TENCH}/c.JPEG: not a readable image (")
    assert end == f"dab: 1 images in {val} cannot be read"
    assert captured.out == f"{tmp_path / 'c'}: 9 files made\n"
    assert len(files(tmp_path / "c")) == 9


def test_a_target_that_cannot_be_written_ends_it(val, tmp_path, capsys):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "contrast").write_text("this is no folder")
    assert corrupted(val, tmp_path / "c", "--workers", "1") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dab: [Errno ")
    assert str(tmp_path / "c" / "contrast") in line


def test_what_cannot_be_corrupted_is_refused_before_anything_is_made(val, tmp_path, capsys):
    def refusal(*options: str, target: Path = tmp_path / "c", source: Path = val) -> str:
        assert corrupted(source, target, "--workers", "0", *options) == 2
        assert not (tmp_path / "c").exists()
        return capsys.readouterr().err

    assert "unknown corruption 'rain'; available: " in refusal("--corruptions", "fog", "rain")
    assert "No such file or directory" in refusal(source=tmp_path / "gone")
    assert f"dab: {val / 'c'} is inside {val}: " in refusal(target=val / "c")
    (tmp_path / "empty").mkdir()
    assert "has no images <wnid>/<name>.JPEG" in refusal(source=tmp_path / "empty")
    plant(val, "cats/a.JPEG", f"{SHARK}/b.jpg")
    assert refusal().splitlines() == [
        f"dab: {val} cannot be corrupted:",
        f"  1 images whose names differ from another's in the suffix alone: {SHARK}/b.JPEG",
        "  1 folders that are not classes of ImageNet: cats",
    ]


# Worker processes


def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_work_is_shared_in_order_and_errors_come_as_they_are(workers):
    assert list(each(halve, range(0, 40, 2), workers)) == list(range(20))
    assert list(each(halve, [], workers)) == []
    results = each(halve, [2, 4, 5, 6], workers)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match=r"^5 is odd$"):
        next(results)


def test_a_plan_names_what_is_left(val, tmp_path):
    maker = Maker(val, tmp_path / "c")
    plan = maker.plan(["contrast", "fog", "contrast"], [5, 1])
    variants = (("contrast", 5), ("contrast", 1), ("fog", 5), ("fog", 1))
    assert [work.variants for work in plan] == [variants] * 4
    assert maker(plan[0]) is None
    assert [work.path for work in maker.plan(["contrast"], [5])] == [w.path for w in plan[1:]]
