"""Draws docs/overview.png, the picture of the README, from a real run: `python docs/overview.py`.

Synthetic glyphs of 100 classes, sorted by class: four corruptions, 2,500 images each. Takes half a
minute on one idle core.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from pictures import save
from torch import Tensor

import dab
from dab.data.corruptions import corrupt
from dab.data.datasets.glyphs import Glyphs
from dab.data.images import to_tensor
from dab.models import zoo

DOMAINS = {
    "gaussian_noise": "Gaussian noise",
    "impulse_noise": "impulse noise",
    "defocus_blur": "defocus blur",
    "fog": "fog",
}
SAMPLES, BATCH = 2500, 50
# DAB's rate is the one that docs/results.md chooses on other corruptions; the rest are defaults.
METHODS = {
    "source model": ("source", {}, "#8a8f98"),
    "TENT": ("tent", {}, "#d98032"),
    "DAB": ("dab", {"capacity": 64, "lr": 4e-3}, "#2563c9"),
}
MOMENT = 2000  # images before the moment that the top row shows
WINDOW = 10  # batches in a point of the error


def stream() -> tuple[Tensor, Tensor]:
    """Images of all domains, and their labels, sorted within each domain."""
    glyphs = Glyphs.of_split("test", SAMPLES)
    order = np.argsort(glyphs.labels, kind="stable")
    rng = np.random.default_rng(0)
    pictures = [corrupt(image, name, 5, rng) for name in DOMAINS for image in glyphs.batch(order)]
    return to_tensor(np.stack(pictures)), torch.as_tensor(glyphs.labels[order]).repeat(len(DOMAINS))


def grid(images: Tensor, columns: int) -> Tensor:
    """Images side by side, with a white line between them."""
    framed = torch.nn.functional.pad(images, (1, 1, 1, 1), value=1.0)
    rows = [torch.cat(list(row), dim=2) for row in framed.split(columns)]
    return torch.cat(rows, dim=1).permute(1, 2, 0)


def bare(axes: Axes, image: Tensor, title: str) -> None:
    axes.imshow(image, interpolation="nearest")
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_axis_off()


def main() -> None:
    torch.set_num_threads(1)
    images, labels = stream()
    errors, held = {}, torch.empty(0)
    classes: list[int] = []
    for title, (method, options, _) in METHODS.items():
        adapter = dab.create(method, zoo.load("glyphs"), **options)
        wrong = []
        for i, (x, y) in enumerate(zip(images.split(BATCH), labels.split(BATCH), strict=True)):
            wrong.append((adapter(x).argmax(1) != y).double().mean().item())
            if method == "dab" and (i + 1) * BATCH == MOMENT:
                slots = sorted(range(len(adapter.buffer)), key=lambda k: adapter.buffer.labels[k])
                held = adapter.buffer.read(torch.tensor(slots))
                classes = [int(adapter.buffer.labels[k]) for k in slots]
        errors[title] = 100 * np.convolve(wrong, np.ones(WINDOW) / WINDOW, "valid")
        print(f"{title}: {100 * np.mean(wrong):.1f} %", adapter.totals)

    figure, panels = plt.subplot_mosaic(
        [["stream", "buffer"], ["error", "error"]],
        figsize=(9, 4.3),
        height_ratios=[1, 2.1],
        layout="constrained",
    )
    last = slice(MOMENT - 64, MOMENT)
    shown, kept = len(labels[last].unique()), len(set(classes))
    bare(
        panels["stream"], grid(images[last], 16), f"The stream: the last 64 images, {shown} classes"
    )
    bare(panels["buffer"], grid(held, 16), f"DAB's buffer: 64 images, {kept} predicted classes")

    axes = panels["error"]
    at = BATCH * (np.arange(len(errors["DAB"])) + WINDOW)
    for title, (_, _, color) in METHODS.items():
        axes.plot(at, errors[title], color=color, lw=1.8, label=title)
    for i, name in enumerate(DOMAINS.values()):
        axes.text((i + 0.5) * SAMPLES, 101, name, ha="center", va="bottom", fontsize=9)
        if i:
            axes.axvline(i * SAMPLES, color="#c8ccd2", lw=0.8)
    axes.axvline(MOMENT, color="#2563c9", lw=0.8, ls=":")
    axes.text(MOMENT - 40, 93, "shown above", ha="right", va="top", fontsize=8, color="#2563c9")
    axes.set(xlim=(0, len(images)), ylim=(0, 100), xlabel="images seen, one class after the other")
    axes.set_ylabel(f"error in %, last {WINDOW * BATCH} images")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left", ncols=3)
    save(figure, Path(__file__).with_name("overview.png"), dpi=160, colors=64)


if __name__ == "__main__":
    main()
