"""What the Markov prior brings and costs: `python -m benchmarks.markov errors`, or `cost`.

`errors` corrects the logits of source models, so that nothing but the correction differs, and
prints the error in % for several orders of the same images. Logits are computed once and kept in
a folder. `--corruptions held-out` is for choosing constants, `--corruptions test` for reporting.

docs/outputs.md says how the constants were chosen.

`cost` compares with a forward pass of a ViT-Ti/16 at 224 pixels, in processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import dab
from benchmarks.step import TinyViT
from dab.data.cache import cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.datasets.cifar10 import CIFAR10
from dab.data.datasets.folder import FolderImages, images_in, subfolders
from dab.data.datasets.glyphs import Glyphs
from dab.data.images import Images, to_tensor
from dab.data.transform import Transform
from dab.models import zoo
from dab.outputs import Markov, Output, create_output
from dab.streams.orders import correlated, dirichlet, shuffled

SEVERITY = 5
Order = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]


def runs(length: int) -> Order:
    """Runs of this length, in random order."""

    def order(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        by_class = np.split(
            place := correlated(labels, rng), np.flatnonzero(np.diff(labels[place])) + 1
        )
        pieces = [
            images[at : at + length] for images in by_class for at in range(0, len(images), length)
        ]
        return np.concatenate([pieces[number] for number in rng.permutation(len(pieces))])

    return order


def skewed(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Shuffled, with class frequencies that fall evenly, in the logarithm, by a factor of 50."""
    classes = rng.permutation(np.unique(labels))
    share = dict(zip(classes.tolist(), np.geomspace(1, 1 / 50, len(classes)), strict=True))
    kept = rng.random(len(labels)) < [share[label] for label in labels.tolist()]
    return rng.permutation(np.flatnonzero(kept))


ORDERS: dict[str, Order] = {
    "shuffled": shuffled,
    "sorted": correlated,
    "runs of 5": runs(5),
    "runs of 10": runs(10),
    "Dirichlet(0.1)": lambda labels, rng: dirichlet(labels, rng, 0.1),
    "skewed, shuffled": skewed,
}


def pictures(root: Path) -> FolderImages:
    """The pictures of a folder of class folders, which have the right size already."""
    folders = subfolders(root)
    found = [
        (entry, label) for label, name in enumerate(folders) for entry in images_in(root, name)
    ]
    entries, labels = zip(*found, strict=True)
    return FolderImages(root, entries, labels, Transform(resize=None, crop=224))


def task(chosen: argparse.Namespace) -> tuple[nn.Module, Images]:
    """A source model, and clean images."""
    if chosen.net == "glyphs":
        return zoo.load("glyphs"), Glyphs.of_split("test", 10_000)
    if chosen.net == "cifar10":
        return zoo.load("cifar10"), CIFAR10(chosen.root, "test")
    model = dab.load_model(chosen.net).model
    return model, CIFAR10(chosen.root, "test") if "resnet26" in chosen.net else pictures(
        chosen.root
    )


@torch.no_grad()
def logits(
    file: Path, model: nn.Module, images: Images, chosen: NDArray[np.int64]
) -> dict[str, Tensor]:
    """Logits and labels of the chosen images, computed at the first call."""
    if not file.exists():
        parts = [
            model(to_tensor(images.batch(part.tolist())))
            for part in np.array_split(chosen, -(-len(chosen) // 100))
        ]
        labels = torch.as_tensor(images.labels)[torch.as_tensor(chosen)]
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"logits": torch.cat(parts), "labels": labels}, file)
    return dict(torch.load(file))


def domains(chosen: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and labels of each domain."""
    model, clean = task(chosen)
    every = np.arange(0, len(clean))
    images = every[np.isin(np.asarray(clean.labels) % chosen.thin, 0)][: chosen.samples]
    for name in chosen.domains or (CORRUPTIONS if chosen.corruptions == "test" else HELD_OUT):
        shown = clean
        for part in () if name == "clean" else name.split("+"):
            shown = CorruptedImages(shown, part, SEVERITY, chosen.cache)
        key = chosen.net.partition("@")[0].replace("/", "-")
        file = chosen.logits / f"{key}-{name}-{chosen.samples}-{chosen.thin}.pt"
        saved = logits(file, model, shown, images)
        yield saved["logits"], saved["labels"]


def error(output: Output | None, stream: list[tuple[Tensor, Tensor]], batch: int) -> float:
    """In %, over all images."""
    wrong = count = 0
    for z, labels in stream:
        for part, truth in zip(z.split(batch), labels.split(batch), strict=True):
            answer = part if output is None else output.correct(part, None)
            wrong += int((answer.argmax(dim=1) != truth).sum())
            count += len(truth)
    return 100 * wrong / count


def errors(chosen: argparse.Namespace) -> None:
    found = list(domains(chosen))
    columns: dict[str, Callable[[], Output | None]] = {
        "none": lambda: None,
        "batch prior": lambda: create_output("batch_prior"),
        "causal prior": lambda: create_output("causal_prior"),
        "filter": lambda: Markov("filter"),
        "smooth": lambda: Markov("smooth"),
    }
    print(f"{chosen.net}, {len(found)} domains, batches of {chosen.batch}, seed {chosen.seed}")
    print(f"{'order':<18}" + "".join(f"{name:>14}" for name in columns))
    for name in chosen.orders or ORDERS:
        stream = []
        for number, (z, labels) in enumerate(found):
            place = ORDERS[name](labels.numpy(), np.random.default_rng([chosen.seed, number]))
            stream.append((z[place], labels[place]))
        row = [error(make(), stream, chosen.batch) for make in columns.values()]
        print(f"{name:<18}" + "".join(f"{value:14.1f}" for value in row), flush=True)


def seconds(function: Callable[[], object], times: int) -> float:
    """Processor time of a call, the median: other processes matter little."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        function()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


@torch.no_grad()
def cost(chosen: argparse.Namespace) -> None:
    model = TinyViT(224).eval()
    experts = len(Markov().names)
    print(f"{experts} experts, {chosen.classes} classes; ViT-Ti/16 at 224 pixels; processor time")
    for n, times in ((64, 15), (1, 300)):
        images, z = torch.rand(n, 3, 224, 224), 3 * torch.randn(n, chosen.classes)
        forward = seconds(lambda images=images: model(images), 3 if n > 1 else 30)  # type: ignore[misc]
        for mode in ("filter", "smooth"):
            output = Markov(mode)  # type: ignore[arg-type]
            own = seconds(lambda output=output, z=z: output.correct(z, None), times)  # type: ignore[misc]
            print(
                f"{n:3d} per call, {mode}: {own * 1e3:.2f} ms, {own / forward:.2%} of a forward "
                f"pass ({forward * 1e3:.0f} ms)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("errors", "cost"))
    parser.add_argument(
        "--net", default="glyphs", help="glyphs, cifar10, or a name for dab.load_model"
    )
    parser.add_argument("--root", type=Path, default=cache_folder() / "cifar10")
    parser.add_argument("--corruptions", choices=("test", "held-out"), default="held-out")
    parser.add_argument(
        "--domains", nargs="*", help="only these corruptions, clean, or one after the other: a+b"
    )
    parser.add_argument("--orders", nargs="*", choices=ORDERS)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--thin", type=int, default=1, help="only every so many classes")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--logits", type=Path, default=cache_folder() / "logits")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    {"errors": errors, "cost": cost}[chosen.what](chosen)


if __name__ == "__main__":
    main()
