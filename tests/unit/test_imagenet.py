"""ImageNet's shifted test sets in tiny trees, and in trees with the published counts."""

from __future__ import annotations

import csv
import os
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dab.data.corruptions import CORRUPTIONS
from dab.data.datasets.folder import Entry, FolderImages
from dab.data.datasets.imagenet import D109_IMAGES, FOLDERS, image_list, load
from dab.data.datasets.imagenet_classes import D109, INDEX, WNIDS
from dab.data.decoding import ExactSize
from dab.data.errors import DataError
from dab.data.transform import Transform
from dab.streams import Domain, Setting, Stream
from tests.support.pictures import jpeg, picture, plant

TRANSFORM = Transform(40, 32)
TENCH, GOLDFISH, SHARK = WNIDS[:3]


def loaded(name: str, root: Path, **options: object):
    return load(name, root, TRANSFORM, **{"partial": True, **options})


def paths(images: FolderImages) -> list[str]:
    return [os.fsdecode(path) for path in images.paths]


def report(name: str, root: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        load(name, root, TRANSFORM, **options)
    return str(caught.value)


# Classes


def test_the_classes_are_a_thousand_wordnet_ids_in_order():
    assert len(WNIDS) == len(set(WNIDS)) == 1000
    assert list(WNIDS) == sorted(WNIDS)
    assert (WNIDS[0], WNIDS[403], WNIDS[999]) == ("n01440764", "n02687172", "n15075141")


def test_the_classes_of_d109_agree_with_those_of_imagenet():
    table = Path(sys.modules["dab.data.datasets.imagenet_classes"].__file__).parent
    with (table / "imagenet_d109.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["label"]) for row in rows] == list(range(109))
    assert [INDEX[row["wnid"]] for row in rows] == [shared.logit for shared in D109]
    assert len({shared.logit for shared in D109}) == 109
    merged = {shared.name: shared.folders for shared in D109 if len(shared.folders) > 1}
    assert merged == {
        "bathtub": ("bathtub", "hot_tub"),
        "bed": ("bed", "couch"),
        "fan": ("fan", "ceiling_fan"),
    }


# Images in folders


def test_images_are_decoded_in_the_order_of_the_indices(tmp_path):
    plant(tmp_path, *(f"{wnid}/{name}.JPEG" for wnid in (TENCH, SHARK) for name in "ab"), width=60)
    (images,) = loaded("folder", tmp_path).domains[tmp_path.name]
    assert images.labels.tolist() == [0, 0, 2, 2]
    batch = images.batch(np.array([3, 0, 3]))
    assert batch.shape == (3, 32, 32, 3)
    singles = [images.batch([index])[0] for index in (3, 0, 3)]
    assert np.array_equal(batch, singles)
    assert not np.array_equal(batch[0], batch[1])
    assert not images.ready()


def entries(*sizes: int) -> list[Entry]:
    return [Entry(f"a/{number}.jpg", size) for number, size in enumerate(sizes)]


def test_the_fingerprint_follows_paths_sizes_labels_and_transform(tmp_path):
    two = entries(5, 6)

    def of(root=tmp_path, files=two, labels=(0, 1), transform=TRANSFORM):
        return FolderImages(root, files, labels, transform).fingerprint

    assert of() == of(root=tmp_path / "elsewhere")
    others = [
        of(files=entries(5, 7)),
        of(files=[Entry("b/0.jpg", 5), Entry("a/1.jpg", 6)]),
        of(labels=(0, 2)),
        of(transform=Transform(40, 31)),
        of(transform=Transform(40, 32, "bicubic")),
    ]
    assert len({of(), *others}) == 6


def test_a_worker_process_gets_few_bytes(tmp_path):
    files = [Entry(f"fog/5/{TENCH}/ILSVRC2012_val_{n:08}.JPEG", 9) for n in range(50_000)]
    images = FolderImages(tmp_path, files, range(50_000), TRANSFORM)
    packed = pickle.dumps(images)
    assert len(packed) < 70 * 50_000
    assert paths(pickle.loads(packed)) == [file.path for file in files]


def test_streams_read_them_with_workers_and_name_what_is_unreadable(tmp_path):
    plant(tmp_path, *(f"{TENCH}/{number}.JPEG" for number in range(6)), width=60, height=50)
    (images,) = loaded("folder", tmp_path).domains[tmp_path.name]
    stream = Stream([Domain("all", [images])], Setting.parse("continual"), batch_size=4)
    assert not stream.ready
    plain, ahead = (list(stream.batches(workers=workers)) for workers in (0, 1))
    assert [len(batch.labels) for batch in plain] == [4, 2]
    assert all((a.images == b.images).all() for a, b in zip(plain, ahead, strict=True))
    (tmp_path / TENCH / "3.JPEG").write_bytes(b"scratched")
    with pytest.raises(ValueError, match=rf"^{tmp_path}/{TENCH}/3\.JPEG: not a readable image"):
        list(stream.batches(workers=1))


# What is there of each data set


def test_imagenet_c_is_read_by_corruption_and_severity(tmp_path):
    plant(
        tmp_path,
        *(f"fog/{severity}/{wnid}/{wnid}_1.JPEG" for severity in (1, 2) for wnid in WNIDS[1:3]),
        f"snow/1/{TENCH}/x.JPEG",
    )
    data = loaded("imagenet-c", tmp_path, severities=[1, 2, 1])
    assert list(data.domains) == ["snow", "fog"]  # in the order of the benchmark
    assert [list(map(paths, parts)) for parts in data.domains.values()] == [
        [[f"snow/1/{TENCH}/x.JPEG"]] * 2,
        [[f"fog/{s}/{wnid}/{wnid}_1.JPEG" for wnid in WNIDS[1:3]] for s in (1, 2, 1)],
    ]
    assert data.domains["fog"][0].labels.tolist() == [1, 2]
    assert data.classes is None
    assert not data.complete


@pytest.mark.parametrize("crop", [224, 384, 192])
def test_imagenet_c_is_not_resized_to_224(crop, tmp_path):
    plant(tmp_path, f"fog/5/{TENCH}/x.JPEG")
    data = load("imagenet-c", tmp_path, Transform(400, crop, "bicubic"), partial=True)
    (images,) = data.domains["fog"]
    expected = ExactSize(224) if crop == 224 else Transform(crop, crop, "bicubic")
    assert images.transform == expected
    assert images.batch([0]).shape == (1, crop, crop, 3)


def test_pictures_of_another_size_are_no_imagenet_c(tmp_path):
    plant(tmp_path, f"fog/5/{TENCH}/x.JPEG", width=300, height=240)
    (images,) = load("imagenet-c", tmp_path, Transform(), partial=True).domains["fog"]
    with pytest.raises(ValueError, match=r"x.JPEG: expected 224 x 224 pixels, got 240 x 300"):
        images.batch([0])


def test_a_list_selects_images_in_its_order(tmp_path):
    names = [f"{wnid}/{number}.JPEG" for wnid in WNIDS[:3] for number in range(2)]
    plant(tmp_path, *(f"fog/5/{name}" for name in names))
    chosen = [names[4], names[1], f"{TENCH}/gone.JPEG"]
    (images,) = loaded("imagenet-c", tmp_path, images=chosen).domains["fog"]
    assert paths(images) == [f"fog/5/{name}" for name in chosen[:2]]
    assert images.labels.tolist() == [2, 0]


def test_imagenet_r_has_the_classes_of_its_folders(tmp_path):
    plant(tmp_path, f"{WNIDS[7]}/art_0.jpg", f"{WNIDS[1]}/toy_3.jpg", f"{WNIDS[7]}/art_1.jpg")
    (tmp_path / "README.txt").write_text("kept beside the folders")
    data = loaded("imagenet-r", tmp_path)
    (images,) = data.domains["imagenet-r"]
    assert data.classes == (1, 7)
    assert images.labels.tolist() == [0, 1, 1]


def test_imagenet_sketch_has_all_classes(tmp_path):
    plant(tmp_path, f"{WNIDS[7]}/sketch_0.JPEG", f"{WNIDS[1]}/sketch_3.JPEG")
    data = loaded("imagenet-sketch", tmp_path)
    (images,) = data.domains["imagenet-sketch"]
    assert data.classes is None
    assert images.labels.tolist() == [1, 7]


def test_d109_merges_and_orders_as_the_table_says(tmp_path):
    with (Path(load.__code__.co_filename).parent / "imagenet_d109.csv").open() as file:
        rows = list(csv.DictReader(file))
    folders = [folder for row in rows for folder in row["domainnet_folders"].split()]
    others = ["The_Eiffel_Tower", "zebra_crossing"]
    plant(tmp_path, "real/bed/a.jpg")
    for domain in ("sketch", "clipart", "quickdraw"):
        for number, folder in enumerate(sorted(folders + others)):
            target = tmp_path / domain / folder / f"{domain}_{number}.jpg"
            target.parent.mkdir(parents=True)
            os.link(tmp_path / "real/bed/a.jpg", target)
    data = loaded("imagenet-d109", tmp_path)
    assert list(data.domains) == ["clipart", "real", "sketch"]
    expected: list[tuple[str, int]] = []
    for row in rows:  # the twin: a loop over the table
        expected += [(folder, int(row["label"])) for folder in row["domainnet_folders"].split()]
    for domain in ("clipart", "sketch"):
        (images,) = data.domains[domain]
        found = [path.split("/")[1] for path in paths(images)]
        assert list(zip(found, images.labels.tolist(), strict=True)) == expected
    assert data.domains["real"][0].labels.tolist() == [9]
    assert data.classes == tuple(int(row["imagenet_index"]) for row in rows)
    assert len(expected) == 112


def test_a_folder_of_ones_own_has_its_names_as_classes(tmp_path):
    plant(tmp_path, "dog/b.png", "cat/a.jpeg", "dog/a.JPG", "ant/.hidden.jpg", ".git/x/y.jpg")
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    data = loaded("folder", tmp_path)
    (images,) = data.domains[tmp_path.name]
    assert paths(images) == ["cat/a.jpeg", "dog/a.JPG", "dog/b.png"]
    assert images.labels.tolist() == [1, 2, 2]
    assert data.classes is None


# Where they are


@pytest.mark.parametrize(
    ("name", "folder", "file"),
    [
        ("imagenet-c", "ImageNet-C", f"fog/5/{TENCH}/a.JPEG"),
        ("imagenet-r", "imagenet_r", f"{TENCH}/a.jpg"),
        ("imagenet-sketch", "sketch", f"{TENCH}/a.JPEG"),
        ("imagenet-sketch", "ImageNet-Sketch/sketch", f"{TENCH}/a.JPEG"),
        ("imagenet-d109", "DomainNet", "sketch/bed/a.jpg"),
        ("imagenet-d109", "imagenet-d109", "sketch/bed/a.jpg"),
    ],
)
def test_a_data_set_is_found_by_its_usual_name_or_is_the_root(name, folder, file, tmp_path):
    plant(tmp_path / folder, file)
    (tmp_path / "something_else").mkdir()
    for root in (tmp_path, tmp_path / folder):
        data = loaded(name, root)
        assert [paths(part) for parts in data.domains.values() for part in parts] == [[file]]
        assert data.name == name
    assert set(FOLDERS) == {
        "imagenet-c",
        "imagenet-r",
        "imagenet-sketch",
        "imagenet-d109",
        "folder",
    }


# What is wrong with them


def test_imagenet_c_says_all_that_is_wrong_at_once(tmp_path):
    for wnid in WNIDS:
        (tmp_path / "fog" / "5" / wnid).mkdir(parents=True)
    plant(tmp_path, f"fog/5/{TENCH}/a.JPEG", "fog/5/n00000000/a.JPEG")
    (tmp_path / f"fog/5/{GOLDFISH}/empty.JPEG").touch()
    (tmp_path / "fog" / "5" / SHARK).rmdir()
    text = report("imagenet-c", tmp_path)
    assert text.splitlines() == [
        f"imagenet-c in {tmp_path} is incomplete or wrong "
        "(to use it nevertheless: partial=True or --partial):",
        "  15 missing folders: gaussian_noise/5, shot_noise/5, impulse_noise/5, defocus_blur/5, "
        "glass_blur/5 and 10 more",
        "  1 folders that are not classes of ImageNet: fog/5/n00000000",
        f"  1 empty files: fog/5/{GOLDFISH}/empty.JPEG",
        f"  999 wrong counts: 1 images in fog/5/{TENCH}, expected 50, "
        + ", ".join(f"0 images in fog/5/{wnid}, expected 50" for wnid in [GOLDFISH, *WNIDS[3:6]])
        + " and 994 more",
    ]


def test_imagenet_c_needs_all_that_is_listed(tmp_path):
    plant(tmp_path, f"fog/5/{TENCH}/a.JPEG")
    (tmp_path / f"fog/5/{TENCH}/b.JPEG").touch()
    listed = [f"{TENCH}/{name}.JPEG" for name in "abc"]
    text = report("imagenet-c", tmp_path, corruptions=["fog"], images=listed)
    assert f"1 missing files: fog/5/{TENCH}/c.JPEG\n" in text
    assert f"1 empty files: fog/5/{TENCH}/b.JPEG" in text
    plant(tmp_path, *(f"fog/5/{name}" for name in listed))
    data = load("imagenet-c", tmp_path, TRANSFORM, corruptions=["fog"], images=listed)
    assert len(data.domains["fog"][0]) == 3
    assert not data.complete  # three are not what was published


def test_imagenet_r_and_sketch_say_all_that_is_wrong_at_once(tmp_path):
    plant(tmp_path, f"{TENCH}/a.jpg", "cats/a.jpg")
    (tmp_path / TENCH / "b.jpg").touch()
    text = report("imagenet-r", tmp_path)
    assert "1 folders that are not classes of ImageNet: cats\n" in text
    assert f"1 empty files: {TENCH}/b.jpg" in text.splitlines()[-1]
    assert "1 classes, expected 200, 1 images, expected 30,000" in text
    text = report("imagenet-sketch", tmp_path)
    assert f"999 missing folders: {GOLDFISH}, " in text
    assert "1 folders that are not classes of ImageNet: cats\n" in text
    assert "1 wrong counts: 1 images, expected 50,889" in text


def test_d109_says_all_that_is_wrong_at_once(tmp_path):
    plant(tmp_path, "clipart/bed/a.jpg", "clipart/hot_tub/a.jpg")
    text = report("imagenet-d109", tmp_path)
    assert "114 missing folders: clipart/aircraft_carrier, " in text  # 110 in clipart, 4 domains
    assert "1 wrong counts: 2 images in clipart, expected 16,049" in text


@pytest.mark.parametrize("name", ["imagenet-c", "imagenet-r", "imagenet-sketch"])
def test_even_a_part_must_not_have_foreign_classes(name, tmp_path):
    prefix = "fog/5/" if name == "imagenet-c" else ""
    plant(tmp_path, f"{prefix}{TENCH}/a.jpg", f"{prefix}cats/a.jpg")
    text = report(name, tmp_path, partial=True)
    assert f"1 folders that are not classes of ImageNet: {prefix}cats" in text


@pytest.mark.parametrize("name", FOLDERS)
def test_even_a_part_needs_an_image(name, tmp_path):
    text = report(name, tmp_path, partial=True)
    assert text == f"{name} in {tmp_path} has none of the requested images"
    assert report(name, tmp_path / "gone") == f"no such folder: {tmp_path / 'gone'}"


def test_a_part_leaves_out_what_is_empty(tmp_path):
    plant(tmp_path, f"{TENCH}/a.jpg")
    (tmp_path / TENCH / "b.jpg").touch()
    (images,) = loaded("imagenet-sketch", tmp_path).domains["imagenet-sketch"]
    assert paths(images) == [f"{TENCH}/a.jpg"]
    assert f"1 empty files: {TENCH}/b.jpg" in report("folder", tmp_path)


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unknown data set 'imagenet-a'; did you mean"):
        load("imagenet-a", tmp_path, TRANSFORM)
    with pytest.raises(ValueError, match="ImageNet-C has no corruption 'rain'"):
        load("imagenet-c", tmp_path, TRANSFORM, corruptions=["fog", "rain"])


# All of them, with the published counts


@pytest.fixture
def forest(tmp_path: Path) -> Iterator[Path]:
    """A folder for hundreds of thousands of links, which are not left lying about."""
    yield tmp_path / "forest"
    shutil.rmtree(tmp_path / "forest")


def grow(root: Path, counts: dict[str, int]) -> None:
    """This many pictures in each folder, all links to a few files."""
    root.mkdir()
    for number, (folder, count) in enumerate(counts.items()):
        file = root / f"{number // 100}.jpg"  # a file can only have so many links
        if not file.exists():
            file.write_bytes(jpeg(picture(32, 32)))
        (root / folder).mkdir(parents=True)
        for link in range(count):
            os.link(file, root / folder / f"{link}.jpg")


def spread(total: int, folders: list[str]) -> dict[str, int]:
    """Images among folders, nearly evenly."""
    share, more = divmod(total, len(folders))
    return {folder: share + (number < more) for number, folder in enumerate(folders)}


def counts_of(name: str) -> dict[str, int]:
    if name == "imagenet-c":
        return dict.fromkeys([f"fog/5/{wnid}" for wnid in WNIDS], 50)
    if name == "imagenet-r":
        return spread(30_000, list(WNIDS[::5]))
    if name == "imagenet-sketch":
        return spread(50_889, list(WNIDS))
    folders = [folder for shared in D109 for folder in shared.folders]
    return {
        f"{domain}/{folder}": count
        for domain, total in D109_IMAGES.items()
        for folder, count in spread(total, folders).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imagenet-c", "imagenet-r", "imagenet-sketch", "imagenet-d109"])
def test_what_has_the_published_counts_is_complete(name, forest):
    counts = counts_of(name)
    grow(forest, counts)
    options = {"corruptions": ["fog"]} if name == "imagenet-c" else {}
    data = load(name, forest, TRANSFORM, **options)
    assert data.complete
    assert sum(len(part) for parts in data.domains.values() for part in parts) == sum(
        counts.values()
    )
    classes = {"imagenet-r": 200, "imagenet-d109": 109}.get(name, 1000)
    for parts in data.domains.values():
        assert np.unique(parts[0].labels).tolist() == list(range(classes))
    assert len(data.classes or WNIDS) == classes
    (forest / next(iter(counts)) / "0.jpg").unlink()
    assert "1 wrong counts: " in report(name, forest, **options)


# Lists


LIST = "\n".join([f"{SHARK}/ILSVRC2012_val_00015253.JPEG", f"{TENCH}/ILSVRC2012_val_00020685.JPEG"])


def test_the_list_of_robustbench_is_read_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "robustbench"
    (package / "helper_files").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "helper_files" / "imagenet_test_image_ids.txt").write_text(LIST)  # no end of line
    monkeypatch.delitem(sys.modules, "robustbench", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert image_list() == LIST.split("\n")
    assert "robustbench" not in sys.modules


def test_without_robustbench_it_is_said_where_to_get_the_list(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "robustbench", raising=False)
    with pytest.raises(ValueError, match="pip install --no-deps robustbench"):
        image_list()


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        (f"{LIST}\nn00000000/a.JPEG", r"line 3 is not <wnid>/<name>: 'n00000000/a.JPEG'"),
        (f"{TENCH}/../a.JPEG", rf"line 1 is not <wnid>/<name>: '{TENCH}/../a.JPEG'"),
        (TENCH, "line 1 is not <wnid>/<name>"),
        (f"{LIST}\n{LIST}\n", f"lists {SHARK}/ILSVRC2012_val_00015253.JPEG more than once"),
        ("\n", "lists no images"),
    ],
)
def test_a_bad_list_is_refused(text, culprit, tmp_path):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"^{tmp_path}/list\.txt.*{culprit}"):
        image_list(tmp_path / "list.txt")


def test_the_domains_are_the_fifteen_unless_told_otherwise(tmp_path):
    plant(tmp_path, *(f"{name}/5/{TENCH}/a.JPEG" for name in [*CORRUPTIONS, "spatter"]), width=32)
    assert tuple(loaded("imagenet-c", tmp_path).domains) == CORRUPTIONS
    assert list(loaded("imagenet-c", tmp_path, corruptions=["spatter"]).domains) == ["spatter"]
