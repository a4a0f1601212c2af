"""Trains the shipped models: AdamW with warm-up and cosine decay, resumable at any step."""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from dab.data.images import Images, to_tensor
from dab.utils import files

__all__ = [
    "Augment",
    "Recipe",
    "accuracy",
    "crop",
    "options",
    "publish",
    "run",
    "train",
]

Augment = Callable[[NDArray[np.uint8], np.random.Generator], NDArray[np.uint8]]


@dataclass(frozen=True)
class Recipe:
    """All hyperparameters of a training."""

    epochs: int
    batch_size: int = 128
    lr: float = 1.5e-3
    weight_decay: float = 0.05
    warmup: float = 0.08  # share of all steps
    smoothing: float = 0.1  # of the labels
    clip: float = 1.0  # norm of the gradient
    seed: int = 0

    def lr_at(self, step: int, steps: int) -> float:
        """Returns the learning rate: a linear rise to `lr`, then a cosine down to zero."""
        rise = max(1, round(self.warmup * steps))
        if step < rise:
            return self.lr * (step + 1) / rise
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def train(
    model: nn.Module,
    data: Images,
    recipe: Recipe,
    checkpoint: Path,
    augment: Augment | None = None,
    *,
    save_every: int = 200,
) -> None:
    """Trains a model in place. Resumes from the checkpoint if there is one.

    Randomness depends on the seed and the step alone, so an interrupted training ends with the same
    weights as an uninterrupted one.
    """
    steps_per_epoch = len(data) // recipe.batch_size
    steps = recipe.epochs * steps_per_epoch
    optimizer = torch.optim.AdamW(_groups(model, recipe.weight_decay), lr=recipe.lr)
    start = _resume(checkpoint, model, optimizer, recipe)
    model.train()
    losses: list[float] = []
    began = time.perf_counter()
    for step in range(start, steps):
        epoch, position = divmod(step, steps_per_epoch)
        if step == start or position == 0:
            order = np.random.default_rng([recipe.seed, epoch]).permutation(len(data))
        indices = order[position * recipe.batch_size :][: recipe.batch_size]
        images = data.batch(indices)
        if augment is not None:
            images = augment(images, np.random.default_rng([recipe.seed, epoch, position]))
        labels = torch.from_numpy(data.labels[indices])
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr_at(step, steps)
        loss = F.cross_entropy(model(to_tensor(images)), labels, label_smoothing=recipe.smoothing)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % save_every == 0 or step + 1 == steps:
            _save(checkpoint, model, optimizer, recipe, step + 1)
        if position + 1 == steps_per_epoch:
            speed = len(losses) * recipe.batch_size / (time.perf_counter() - began)
            print(
                f"epoch {epoch + 1}/{recipe.epochs}: loss {np.mean(losses):.4f}, "
                f"{speed:.0f} images/s",
                flush=True,
            )
            losses, began = [], time.perf_counter()
    model.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, data: Images, batch_size: int = 250) -> float:
    """Returns the share of correct predictions."""
    correct = 0
    for indices in np.split(np.arange(len(data)), range(batch_size, len(data), batch_size)):
        predicted = model(to_tensor(data.batch(indices))).argmax(dim=1).numpy()
        correct += int((predicted == data.labels[indices]).sum())
    return correct / len(data)


def crop(images: NDArray[np.uint8], rng: np.random.Generator, margin: int) -> NDArray[np.uint8]:
    """Shifts each image by up to `margin` pixels in both directions and repeats its edges."""
    n, height, width, _ = images.shape
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)), mode="edge")
    top, left = rng.integers(0, 2 * margin + 1, size=(2, n, 1))
    rows, columns = top + np.arange(height), left + np.arange(width)
    which = np.arange(n)[:, None, None]
    moved: NDArray[np.uint8] = padded[which, rows[:, :, None], columns[:, None]]
    return moved


def publish(model: nn.Module, file: Path) -> str:
    """Writes a model's weights in half precision and returns the checksum for `zoo.MODELS`.

    The model gets the rounded weights, so what is measured afterward is what is shipped.
    """
    from safetensors.torch import save

    halves = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    model.load_state_dict(halves)
    content = save(halves)
    files.write(file, content)
    return hashlib.sha256(content).hexdigest()


def options(description: str | None, file: Path, recipe: Recipe) -> argparse.ArgumentParser:
    """Returns a parser with the options that all training scripts share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=file, help="file for the weights")
    parser.add_argument("--epochs", type=int, default=recipe.epochs, help="passes over the data")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    return parser


def run(
    arguments: argparse.Namespace,
    recipe: Recipe,
    model: Callable[[], nn.Module],
    data: Images,
    test: Images,
    augment: Augment | None = None,
) -> None:
    """Trains a model, writes its weights and prints its test accuracy."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(recipe.seed)
    net = model()
    recipe = replace(recipe, epochs=arguments.epochs)
    train(net, data, recipe, arguments.out.with_suffix(".checkpoint"), augment)
    checksum = publish(net, arguments.out)
    print(f"test accuracy {accuracy(net, test):.4f}, sha256 {checksum}", flush=True)


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    # No weight decay for scales, shifts and biases.
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _save(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe, step: int
) -> None:
    content = io.BytesIO()
    torch.save(
        {
            "recipe": asdict(recipe),
            "net": repr(model),
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
        },
        content,
    )
    files.write(file, content.getvalue())


def _resume(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> int:
    """Restores model and optimizer from a checkpoint. Returns the next step."""
    if not file.exists():
        return 0
    state = torch.load(file, weights_only=True)
    if (state["recipe"], state["net"]) != (asdict(recipe), repr(model)):
        raise ValueError(f"{file} is the checkpoint of another training: remove it to start over")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step: int = state["step"]
    return step
