"""Sequence DAB per domain: `python -m benchmarks.sequence --net glyphs --method sequence_dab`.

The streams of `--corruptions held-out` are for choosing settings: ten domains of other images than
those reported on, in an order that the seed draws. They are the four held-out corruptions, four
pairs of them, one mild corruption and clean images. Those of `--corruptions test` are for
reporting. Prints the error in % of each domain, one JSON object per run.

docs/sequence.md says how the settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import dab
from benchmarks.markov import ORDERS, task
from dab.benchmark.cell import parse_method
from dab.data.cache import cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS, HELD_OUT
from dab.data.images import to_tensor

CHOOSING = [f"{name} 5" for name in HELD_OUT]
# As hard as the noises of the test, which no held-out corruption is alone.
CHOOSING += ["gaussian_blur 5 speckle_noise 5", "spatter 5 speckle_noise 5"]
CHOOSING += ["saturate 5 speckle_noise 5", "spatter 5 gaussian_blur 5"]
CHOOSING += ["clean", "speckle_noise 3"]
REPORTING = [f"{name} 5" for name in CORRUPTIONS]
Domain = tuple[str, Tensor, Tensor]  # its name, images and labels


def stream(chosen: argparse.Namespace, order: str, seed: int) -> list[Domain]:
    """The domains of a stream."""
    _, clean = task(chosen)
    held_out = chosen.corruptions == "held-out"
    names = CHOOSING[: chosen.domains] if held_out else REPORTING[: chosen.domains]
    rng = np.random.default_rng(seed)
    places = np.arange(chosen.samples) + (len(clean) // 2 if held_out else 0)
    labels = np.asarray(clean.labels)[places]
    found: list[Domain] = []
    for number in rng.permutation(len(names)) if held_out else range(len(names)):
        parts = [] if names[number] == "clean" else names[number].split()
        images = clean
        for name, severity in zip(parts[::2], parts[1::2], strict=True):
            images = CorruptedImages(images, name, int(severity), chosen.cache)
        at = ORDERS[order](labels, rng)
        batch = to_tensor(images.batch(places[at]))
        found.append((names[number], batch, torch.as_tensor(labels[at])))
    return found


def run(chosen: argparse.Namespace, text: str, order: str, seed: int) -> dict[str, object]:
    """A method on a stream: what is printed."""
    model, _ = task(chosen)
    (method,) = parse_method(text)
    adapter = dab.create(method.name, model.eval(), seed=seed, **method.options)
    errors, spent = {}, 0.0
    for name, images, labels in stream(chosen, order, seed):
        start = time.process_time()
        answers = torch.cat([adapter(batch) for batch in images.split(chosen.batch)])
        spent += time.process_time() - start
        errors[name] = round(100 * (answers.argmax(dim=1) != labels).double().mean().item(), 2)
    totals = adapter.totals
    return {
        "net": chosen.net.partition("@")[0],
        "corruptions": chosen.corruptions,
        "samples": chosen.samples,
        "order": order,
        "seed": seed,
        "method": text,
        "error": round(float(np.mean(list(errors.values()))), 2),
        "updates": totals.updates,
        "restarts": totals.restarts,
        "calls": totals.calls,
        "seconds": round(spent, 1),
        "errors": errors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="glyphs", help="as in benchmarks.markov")
    parser.add_argument("--root", type=Path, default=cache_folder() / "cifar10")
    parser.add_argument("--corruptions", choices=("test", "held-out"), default="held-out")
    parser.add_argument("--domains", type=int, help="only the first so many")
    parser.add_argument("--orders", nargs="+", choices=ORDERS, default=["sorted", "shuffled"])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--method", action="append", help="a method with options, as in dab bench")
    parser.add_argument("--out", type=Path, help="a file to append the printed lines to")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    for seed in chosen.seeds:
        for order in chosen.orders:
            for text in chosen.method or ["source", "source output=markov", "sequence_dab"]:
                line = json.dumps(run(chosen, text, order, seed))
                print(line, flush=True)
                if chosen.out is not None:
                    with chosen.out.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
