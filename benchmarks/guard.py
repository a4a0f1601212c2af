"""What the guard saves, costs and estimates: `python -m benchmarks.guard errors`, and others below.

- `errors`: error in % of the source model, and of methods at multiples of their published rates
  without and with a guard; rollbacks, and how far estimated errors were off. Every cell is a line
  of a file, and cells that the file has are not run again: the command can be interrupted. Cells
  are run in random order, the same for the same arguments, so that the file always is a fair
  sample of the grid. `python docs/guard.py --results FILE` makes tables of it.
- `collapses`: how many calls an injected collapse takes to be noticed.
- `cost`: of a guarded call, relative to one without, measured in turns in one process.
- `fit`: the constants of `dab.guard.signals`, by least squares over windows of streams without a
  guard. This was done on the held-out corruptions alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import dab
from dab import registry
from dab.data.cache import cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.datasets.cifar10 import CIFAR10
from dab.data.datasets.glyphs import Glyphs
from dab.data.images import Images, to_tensor
from dab.guard import Calibration, Guard
from dab.guard.guard import WINDOWS
from dab.guard.signals import Comparison
from dab.models import zoo
from dab.parts.functional import probabilities
from dab.streams.orders import correlated, dirichlet, shuffled

SEVERITY = 5
WINDOW = 1000  # images over which an estimate is compared with the truth
ORDERS: dict[str, Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.int64]]] = {
    "shuffled": shuffled,
    "sorted": correlated,
    "dirichlet": lambda labels, rng: dirichlet(labels, rng, 0.1),
}
# All that keep what they learn from call to call, which MEMO does not. Sequence DAB corrects its
# output, so its errors cannot be compared with the source's.
METHODS = tuple(
    name
    for name in dab.methods()
    if registry.asks_for(name, "guard") and name not in ("memo", "sequence_dab")
)
# The correction of the output exploits the order of labels and is not what the guard guards.
OPTIONS = {"roid": {"output": None}, "cmf": {"output": None}, "dab": {"capacity": 64}}


@dataclass
class Shown:
    """A stream: images, labels, and the source model's probabilities."""

    images: NDArray[np.uint8]
    labels: Tensor
    source: Tensor


def load(net: str) -> nn.Module:
    """A source model by name."""
    return zoo.load(net) if net in zoo.names() else dab.load_model(net).model.eval()


def streams(chosen: argparse.Namespace) -> Iterator[tuple[str, Shown]]:
    """The stream of each order."""
    clean = clean_images(chosen)
    names = CORRUPTIONS[:: chosen.thin] if chosen.corruptions == "test" else HELD_OUT
    places = np.arange(chosen.samples)
    domains = [CorruptedImages(clean, name, SEVERITY).batch(places) for name in names]
    labels = np.asarray(clean.labels)[: chosen.samples]
    for order in chosen.orders:
        rng = np.random.default_rng(chosen.seed)
        orders = [ORDERS[order](labels, rng) for _ in domains]
        images = np.concatenate([domain[at] for domain, at in zip(domains, orders, strict=True)])
        with torch.no_grad():
            model = load(chosen.net)
            source = torch.cat([probabilities(model(x)) for x in in_batches(images, 100)])
        yield order, Shown(images, torch.as_tensor(labels[np.concatenate(orders)]), source)


def clean_images(chosen: argparse.Namespace) -> Images:
    if chosen.net == "glyphs":
        return Glyphs.of_split("test", 10_000)
    return CIFAR10(chosen.root, "test")


def in_batches(images: NDArray[np.uint8], size: int) -> Iterator[Tensor]:
    for start in range(0, len(images), size):
        yield to_tensor(images[start : start + size])


def create(chosen: argparse.Namespace, method: str, factor: float, guard: bool) -> dab.Adapter:
    """A method at a multiple of its published rate."""
    rate = dab.method(method).published["lr"]
    model = load(chosen.net)
    options = {**OPTIONS.get(method, {}), "lr": factor * rate}
    if guard:
        options["guard"] = Recording(calibration=calibration(chosen, model))
    return dab.create(method, model, **options)


class Recording(Guard):
    """Remembers what the model itself predicted, whatever the guard then answered."""

    predicted: Tensor

    def check(self, adapter: dab.Adapter, batch: Tensor, answer: Tensor) -> Tensor:
        self.predicted = answer.argmax(dim=1)
        return super().check(adapter, batch, answer)


def calibration(chosen: argparse.Namespace, model: nn.Module) -> Calibration | None:
    """From clean labeled images that the streams do not show."""
    if not chosen.labeled:
        return None
    images = clean_images(chosen)
    places = np.arange(len(images) - chosen.labeled, len(images))
    labels = torch.as_tensor(np.asarray(images.labels)[places])
    return Calibration.of(model, to_tensor(images.batch(places)), labels)


def errors(chosen: argparse.Namespace) -> None:
    """Run the cells that the file lacks, without and with a guard, and print each."""
    began = time.process_time()
    known = {cell_of(row) for row in rows_of(chosen.results)}
    where = [getattr(chosen, name) for name in SHARED]
    by_order = dict(streams(chosen))
    cells = list(product(chosen.orders, chosen.methods, chosen.rates))
    np.random.default_rng(chosen.seed).shuffle(cells)
    for (order, method, rate), guard in product(cells, (False, True)):
        cell = dict(zip(CELL, (*where, order, method, float(rate), guard), strict=True))
        if cell_of(cell) in known or time.process_time() - began > chosen.seconds:
            continue
        row = {**cell, **measured(chosen, method, float(rate), by_order[order], guard)}
        with chosen.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


# What tells cells apart.
SHARED = ("net", "corruptions", "thin", "samples", "batch", "seed", "labeled")
CELL = (*SHARED, "order", "method", "rate", "guard")


def cell_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in CELL)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured(
    chosen: argparse.Namespace, method: str, factor: float, stream: Shown, guard: bool
) -> dict[str, Any]:
    """Error in %; with a guard also rollbacks, and how far estimates are off, in points."""
    adapter = create(chosen, method, factor, guard)
    wrong, rollbacks, off, by_model = [], [], [], []
    labels = torch.split(stream.labels, chosen.batch)
    for images, truth in zip(in_batches(stream.images, chosen.batch), labels, strict=True):
        wrong.append((adapter(images).argmax(dim=1) != truth).double())
        rollbacks += [adapter.totals.samples] * adapter.last.rolled_back
        if guard:
            by_model.append((adapter.guard.predicted != truth).double())
            off.append(adapter.last.estimated_error - by_model[-1])
    answered = torch.cat(wrong)
    by_source = (stream.source.argmax(dim=1) != stream.labels).double()
    error, source = (100 * float(each.mean()) for each in (answered, by_source))
    found = {"images": len(answered), "source": round(source, 2), "error": round(error, 2)}
    if not guard:
        return found
    own = torch.cat(by_model)
    return {
        **found,
        "rollbacks": rollbacks,
        "false": [
            at
            for since, at in pairwise([0, *rollbacks])
            if not is_worse(own[since:at], by_source[since:at])
        ],
        "compared": round(100 * adapter.totals.compared / adapter.totals.samples, 2),
        "off": over_windows(off),
    }


def is_worse(own: Tensor, source: Tensor) -> bool:
    """Whether there were more errors than the source's in the last 320 or the last 1,000 images.

    Of two models that are equally good, each has more than the other in one of the two windows more
    often than not, so this is lenient.
    """
    return any(own[-span:].sum() > source[-span:].sum() for span in WINDOWS)


def over_windows(differences: list[Tensor]) -> list[float]:
    """Means in points."""
    windows = torch.split(torch.cat(differences), WINDOW)
    means = [100 * float(window.mean()) for window in windows if len(window) >= WINDOW / 2]
    return [round(mean, 2) for mean in means]


def collapses(chosen: argparse.Namespace) -> None:
    """Make methods collapse after a healthy start, and count the calls until that is noticed.

    What is not noticed may be harmless: the error on the images of the start tells.
    """
    ((_, stream),) = streams(argparse.Namespace(**{**vars(chosen), "orders": ["shuffled"]}))
    healthy = list(in_batches(stream.images, chosen.batch))[:20]
    labels = stream.labels.split(chosen.batch)[:20]
    one = stream.labels == stream.labels[0]
    only = list(in_batches(stream.images[one.numpy()], chosen.batch))[:20]
    generator = torch.Generator().manual_seed(chosen.seed)
    noise = [torch.rand(healthy[0].shape, generator=generator) for _ in range(20)]
    constant = [torch.full_like(healthy[0], 0.5) for _ in range(20)]
    for method in chosen.methods:
        injected = {"one class": only, "noise": noise, "constant": constant, "rate x64": healthy}
        for name, batches_of in injected.items():
            adapter = create(chosen, method, 1, guard=True)
            for images in healthy:
                adapter(images)
            before = error_of(adapter, healthy, labels)
            adapter.trained.learning_rate *= 64
            calls, rollbacks = adapter.totals.calls, adapter.totals.rollbacks
            for number in range(40):
                adapter(batches_of[number % len(batches_of)])
                if adapter.last.rolled_back:
                    break
            after = error_of(adapter, healthy, labels)
            noticed = adapter.totals.rollbacks > rollbacks
            when = f"after {adapter.totals.calls - calls} calls" if noticed else "never in 40 calls"
            print(
                f"{chosen.net}: {method:6} {name:10} noticed {when}; error on the first images "
                f"{before:.1f} % before, {after:.1f} % then",
                flush=True,
            )


def error_of(adapter: dab.Adapter, batches_of: list[Tensor], labels: Sequence[Tensor]) -> float:
    """In %, on every fourth batch."""
    pairs = list(zip(batches_of, labels, strict=True))[::4]
    wrong = [(adapter.predict(x).argmax(dim=1) != y).double() for x, y in pairs]
    return 100 * float(torch.cat(wrong).mean())


def cost(chosen: argparse.Namespace) -> None:
    """CPU time of guarded and plain calls in turns, after the guard's first close looks.

    With a rate so small that nothing happens: what a guard costs where all is well.
    """
    for method, size in product(chosen.methods, chosen.sizes):
        options = {**OPTIONS.get(method, {}), "lr": 1e-7}
        pair = [dab.create(method, load(chosen.net), guard=g, **options) for g in (False, True)]
        # Mixed labels, so that methods with a buffer learn as often as they do on real streams.
        images = clean_images(chosen).batch(np.arange(64 * 20))
        calls = [x[:size] for x in in_batches(images, 64)]
        for x in calls[:2]:
            for adapter in pair:
                adapter(x)
        pair[1].guard.probe._close = 0.0  # what a long stream has left of close looks
        repeated = chosen.calls if size > 1 else 8 * chosen.calls
        ratios = []
        for _ in range(3):
            spent = [0.0, 0.0]
            for number in range(repeated):
                for which in (0, 1) if number % 2 else (1, 0):
                    began = time.process_time()
                    pair[which](calls[number % len(calls)])
                    spent[which] += time.process_time() - began
            ratios.append(100 * (spent[1] / spent[0] - 1))
        updates = 100 * pair[1].totals.updates / pair[1].totals.calls
        shown = " ".join(f"{ratio:+.1f}" for ratio in ratios)
        print(f"{method:6} batch {size:2}, {updates:.0f} % of calls learn: {shown} %", flush=True)


def fit(chosen: argparse.Namespace) -> None:
    """Least squares of the true added error, and of the source's accuracy, over windows."""
    rows, targets, certainties, accuracies = [], [], [], []
    for _, stream in streams(chosen):
        for method, factor in product(chosen.methods, chosen.rates):
            adapter = create(chosen, method, factor, guard=False)
            answers = [probabilities(adapter(x)) for x in in_batches(stream.images, chosen.batch)]
            adapted = torch.cat(answers)
            for part in torch.split(torch.arange(len(adapted)), 500):
                comparison = Comparison()
                comparison.add(adapted[part], stream.source[part])
                found = comparison.opinion(len(part))
                wrong = [
                    p[part].argmax(dim=1) != stream.labels[part] for p in (adapted, stream.source)
                ]
                added, source = (float(w.double().mean()) for w in wrong)
                rows.append([found.lost, -found.gained, found.lost_classes])
                targets.append(added - source)
                certainties.append([found.certainty])
                accuracies.append(1 - source)
    for name, x, y in (("added error", rows, targets), ("accuracy", certainties, accuracies)):
        x, y = np.array(x), np.array(y)
        weights, *_ = np.linalg.lstsq(x, y, rcond=None)
        off = np.abs(x @ weights - y)
        print(
            f"{chosen.net}: {name}: {weights.round(2)}, off by {100 * off.mean():.1f} points, "
            f"90 % within {100 * np.quantile(off, 0.9):.1f}"
        )


COMMANDS = {"errors": errors, "collapses": collapses, "cost": cost, "fit": fit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument(
        "--net", default="glyphs", help="glyphs, cifar10 or a model of dab.load_model"
    )
    parser.add_argument("--root", type=Path, default=cache_folder() / "cifar10")
    parser.add_argument("--corruptions", choices=["test", "held-out"], default="test")
    parser.add_argument("--thin", type=int, default=3, help="every K-th of the test corruptions")
    parser.add_argument("--samples", type=int, default=1000, help="images per domain")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--rates", nargs="+", type=float, default=(1, 4, 16, 64))
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=list(ORDERS))
    parser.add_argument("--labeled", type=int, default=300, help="images for the calibration")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--sizes", nargs="+", type=int, default=(64, 1), help="of calls, for cost")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("guard.jsonl"), help="of errors")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no cell after that")
    parser.add_argument("--calls", type=int, default=30)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    COMMANDS[chosen.command](chosen)


if __name__ == "__main__":
    main()
