"""A small correlated stream: a net is trained on synthetic patterns, then the pictures change.

Everything here is synthetic and made on the spot: 40 classes of coarse colour patterns, and a
stream that shows them class after class under noise, low contrast and haze. Prints the error of
the source model, of TENT and of DAB on the same stream.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dab

CLASSES = 40
PER_CLASS = 100
SIZE = 16


def make_patterns(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Each class is a coarse pattern of its own; every sample is shifted and tinted a little."""
    prototypes = torch.rand(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    coarse = prototypes[labels] + 0.18 * torch.randn(len(labels), 3, 4, 4, generator=generator)
    images = F.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear")
    shift = torch.randint(-2, 3, (2,), generator=generator).tolist()
    tint = 1 + 0.1 * torch.randn(len(labels), 3, 1, 1, generator=generator)
    return (images.roll(shift, dims=(2, 3)) * tint).clamp(0, 1)


def make_net() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.GroupNorm(8, 64), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.GroupNorm(8, 64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, CLASSES)),
    )


def progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        filled = 30 * done // total
        end = "\n" if done == total else ""
        print(f"\r{what:<22} [{'#' * filled:<30}]", end=end, file=sys.stderr, flush=True)


def train(model: nn.Module, steps: int = 500) -> None:
    generator = torch.Generator().manual_seed(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        labels = torch.randint(CLASSES, (128,), generator=generator)
        loss = F.cross_entropy(model(make_patterns(labels, generator)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        progress("training the source", step + 1, steps)


def shifted(images: Tensor, domain: str, generator: torch.Generator) -> Tensor:
    if domain == "noise":
        images = images + 0.22 * torch.randn(images.shape, generator=generator)
    elif domain == "low contrast":
        images = 0.5 + 0.3 * (images - 0.5)
    else:
        images = 0.45 * images + 0.5
    return (images.clamp(0, 1) * 255).round() / 255


def stream(domain: str, sort: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(len(domain))
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    if sort:
        labels = labels.sort().values
    images = torch.cat([make_patterns(part, generator) for part in labels.split(50)])
    return shifted(images, domain, generator), labels


def main() -> None:
    torch.manual_seed(0)
    started = time.perf_counter()
    model = make_net()
    train(model)
    source = {key: value.clone() for key, value in model.state_dict().items()}
    domains = ("noise", "low contrast", "haze")
    print(f"\nerror in %, {CLASSES} synthetic classes one after the other, batches of 64")
    print(f"{'method':<18}" + "".join(f"{domain:>14}" for domain in domains) + f"{'mean':>8}")
    for name, options in (("source", {}), ("tent", {"lr": 1e-3}), ("dab", {"lr": 1e-3})):
        model.load_state_dict(source)
        if name == "dab":
            options = {**options, "capacity": 1024}
        errors = []
        with dab.create(name, model, **options) as adapter:
            for number, domain in enumerate(domains):
                images, labels = stream(domain, sort=True)
                wrong = 0
                for start in range(0, len(images), 64):
                    part = slice(start, start + 64)
                    wrong += int((adapter(images[part]).argmax(1) != labels[part]).sum())
                errors.append(100 * wrong / len(images))
                progress(f"{name} adapts", number + 1, len(domains))
        figures = "".join(f"{error:>14.1f}" for error in (*errors, sum(errors) / len(errors)))
        print(f"{name:<18}{figures}   ({adapter.totals.updates} updates)")
    print(f"\n{time.perf_counter() - started:.0f} s. Nothing here says much about real images.")


if __name__ == "__main__":
    main()
