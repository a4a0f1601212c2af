"""`dab data`: list, fetch, check and make data sets."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from dab.cli.options import Commands, add_imports, add_json, at_least, command, import_modules

__all__ = ["add"]

EXAMPLES = """examples:
  dab data list                                  every data set and what it needs
  dab data get cifar10                           download CIFAR-10
  dab data check imagenet-r --root data          is ImageNet-R complete, and every image readable?
  dab data corrupt --from val --to imagenet-c    make ImageNet-C from ImageNet's validation images

Use `dab data COMMAND --help` for the options of each, and more examples.
"""

LIST_EXAMPLES = """examples:
  dab data list
  dab data list --json
  dab data list --import my_data.py   with your own
"""

GET_EXAMPLES = """examples:
  dab data get cifar10                     into the user's cache, where `dab run` looks for it
  dab data get cifar10 --root data/cifar   into a folder; pass --root to `dab run` too

A folder with the usual cifar-10-batches-py works as it is: dab run ... --root FOLDER.
"""

CHECK_EXAMPLES = """examples:
  dab data check imagenet-c --root data                    15 x 50,000 images of severity 5
  dab data check imagenet-c --root data --list robustbench   15 x 5,000: the continual setting
  dab data check imagenet-d109 --root data --quick         folders and counts only
  dab data check folder --root my_photos                   your own images

ROOT is the data set's folder, or one that contains it under its usual name, such as ImageNet-C,
imagenet-r, sketch or domainnet. The exit status is 0 if all is well, 1 if not.
"""

CORRUPT_EXAMPLES = """examples:
  dab data corrupt --from val --to data/imagenet-c
  dab data corrupt --from val --to data/imagenet-c --severity 1 2 3 4 5 --workers 8
  dab data corrupt --from val --to data/held-out \\
      --corruptions speckle_noise gaussian_blur spatter saturate

Images are resized to 256 and cropped to 224 pixels, corrupted, and saved as JPEG of quality 85.
Images of 224 x 224 pixels are corrupted as they are. Rerun the same command to resume; neither an
interruption nor the number of workers changes any file.
"""


def add(commands: Commands) -> None:
    parser = command(commands, "data", "list, download, check or make data sets", EXAMPLES)
    parts = parser.add_subparsers(dest="part", required=True, metavar="command")
    _add_list(parts)
    _add_get(parts)
    _add_check(parts)
    _add_corrupt(parts)


def _add_list(parts: Commands) -> None:
    parser = command(parts, "list", "list the data sets and what each needs", LIST_EXAMPLES, show)
    add_imports(parser)
    add_json(parser)


def _add_get(parts: Commands) -> None:
    parser = command(parts, "get", "download a data set", GET_EXAMPLES, get)
    parser.add_argument("name", help="name of the data set; see `dab data list`")
    parser.add_argument("--root", type=Path, help="target folder (default: the user's cache)")
    add_imports(parser)


def _add_check(parts: Commands) -> None:
    parser = command(parts, "check", "check a data set on disk", CHECK_EXAMPLES, check)
    parser.add_argument("name", help="name of the data set; see `dab data list`")
    parser.add_argument("--root", type=Path, required=True, help="its folder")
    parser.add_argument("--quick", action="store_true", help="do not decode the images")
    parser.add_argument("--partial", action="store_true", help="accept an incomplete data set")
    parser.add_argument(
        "--list",
        metavar="FILE",
        help="of data with corruptions: restrict to the images in FILE, one CLASS/NAME per line, "
        "or to RobustBench's list of ImageNet-C with `robustbench`",
    )
    _add_variants(parser, "of data with corruptions: restrict to these")
    _add_workers(parser)
    add_imports(parser)
    add_json(parser)


def _add_corrupt(parts: Commands) -> None:
    parser = command(parts, "corrupt", "make an ImageNet-C tree", CORRUPT_EXAMPLES, corrupt)
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="VAL",
        help="folder with ImageNet's validation images as <wnid>/<name>.JPEG",
    )
    parser.add_argument(
        "--to", dest="target", type=Path, required=True, metavar="OUT", help="folder for the tree"
    )
    _add_variants(parser, "which")
    _add_workers(parser)


def _add_variants(parser: argparse.ArgumentParser, which: str) -> None:
    parser.add_argument(
        "--corruptions",
        nargs="+",
        metavar="NAME",
        help=f"{which} (default: the fifteen of ImageNet-C)",
    )
    parser.add_argument(
        "--severity",
        nargs="+",
        type=int,
        choices=range(1, 6),
        help=f"{which} (default: 5)",
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=at_least(0), help="processes (default: one per core)")


def show(chosen: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from dab.benchmark.tasks import TASKS, task_factory

    import_modules(chosen.imports)
    factories = [task_factory(name) for name in TASKS]
    if chosen.json:
        facts = ("name", "summary", "images", "classes", "needs", "takes", "default_model")
        found = [
            {**{fact: getattr(one, fact) for fact in facts}, "options": [*one.options]}
            for one in factories
        ]
        print(json.dumps(found, indent=1))
        return 0
    table = Table("data", "images per domain", "classes", "needs", "default model", "options")
    table.add_column("description")
    for one in factories:
        sizes = ["" if size is None else f"{size:,}" for size in (one.images, one.classes)]
        options = ", ".join(one.options)
        table.add_row(one.name, *sizes, one.needs, one.default_model, options, one.summary)
    console = Console()
    table.width = console.measure(table, options=console.options.update(width=10_000)).maximum
    console.print(table, crop=False)
    return 0


def get(chosen: argparse.Namespace) -> int:
    from rich.console import Console

    from dab.benchmark.tasks import task_factory

    import_modules(chosen.imports)
    with Console(stderr=True).status(f"downloading {chosen.name}"):
        found = task_factory(chosen.name).download(chosen.root)
    print(found)
    return 0


def check(chosen: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from dab.benchmark.tasks import task_factory
    from dab.data.errors import DataError
    from dab.data.verify import unreadable
    from dab.utils.progress_bar import progress

    import_modules(chosen.imports)
    factory = task_factory(chosen.name)
    options: dict[str, Any] = {}
    if chosen.list is not None:
        options["images"] = chosen.list
    if chosen.corruptions is not None:
        options["corruptions"] = chosen.corruptions
    if chosen.severity is not None:
        options["severities"] = chosen.severity
    complete = True
    try:
        data = factory.check(chosen.root, partial=chosen.partial, **options)
    except DataError as error:
        print(f"dab: {error}", file=sys.stderr)
        complete = False
        try:  # what exists may also be unreadable
            data = factory.check(chosen.root, partial=True, **options)
        except DataError:
            return 1
    parts = [part for parts in data.domains.values() for part in parts]
    bad = 0
    if not chosen.quick:
        with progress() as bars:
            bar = bars.add_task("decoding", total=sum(map(len, parts)))
            for seen, found in unreadable(parts, _workers(chosen)):
                bars.advance(bar, seen)
                bad += len(found)
                for line in found:
                    bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
    if bad:
        return _status(bad, parts[0].root)
    if not complete:
        return 1
    counts = {
        name: {
            "images": sum(map(len, of)),
            "classes": len({label for part in of for label in part.labels.tolist()}),
        }
        for name, of in data.domains.items()
    }
    root = str(parts[0].root)
    if chosen.json:
        facts = {"name": data.name, "root": root, "complete": data.complete, "domains": counts}
        print(json.dumps(facts, indent=1))
        return 0
    print(f"{data.name} in {root}" + ("" if data.complete else ", partial"))
    table = Table("domain", "images", "classes")
    for name, count in counts.items():
        table.add_row(name, *(f"{number:,}" for number in count.values()))
    Console().print(table)
    return 0


def corrupt(chosen: argparse.Namespace) -> int:
    import cv2

    from dab.data.corruptions import CORRUPTIONS
    from dab.data.make_imagenet_c import Maker
    from dab.utils.parallel import each
    from dab.utils.progress_bar import progress

    cv2.setNumThreads(1)  # there are processes enough; they must not set it once its threads run
    maker = Maker(chosen.source, chosen.target)
    work = maker.plan(chosen.corruptions or CORRUPTIONS, chosen.severity or [5])
    made = bad = 0
    with progress() as bars:
        bar = bars.add_task("corrupting", total=sum(len(one.variants) for one in work))
        for one, error in zip(work, each(maker, work, _workers(chosen)), strict=True):
            bars.advance(bar, len(one.variants))
            if error is None:
                made += len(one.variants)
            else:
                bad += 1
                bars.console.print(error, markup=False, highlight=False, soft_wrap=True)
    print(f"{chosen.target}: {made:,} files made")
    return _status(bad, chosen.source)


def _status(bad: int, folder: Path) -> int:
    if bad:
        print(f"dab: {bad:,} images in {folder} cannot be read", file=sys.stderr)
    return 1 if bad else 0


def _workers(chosen: argparse.Namespace) -> int:
    from dab.utils.parallel import usable_cores

    if chosen.workers is not None:
        return int(chosen.workers)
    return usable_cores()
