"""A fleet against its slow twin: one adapter per stream, each with a model of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dab
from dab.testing import stream
from tests.support.adapters import QUICK

__all__ = ["OPTIONS", "Twins", "everything", "pool"]

# Options with which each method that a fleet takes learns within a few images, in float64.
SINGLE = {"batch_size": 4, "capacity": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "cmf": {"output": "markov"},
    "dab": {**SINGLE, "admission": "running", "filling": "adapt", "steps": 2},
    "deyo": QUICK["deyo"],
    "eata": {
        "margin": 0.9,
        "source_images": torch.cat(stream(seed=9, dtype=torch.float64)[:2]),
        "fisher_weight": 1.0,
    },
    "lame": {},
    "norm": {"output": "causal_prior"},
    "note": {"capacity": 4, "update_every": 3},
    "rdumb": QUICK["rdumb"],
    "roid": {"output": "markov"},
    "rotta": {"capacity": 4, "update_every": 3},
    "rpl": {"steps": 2},
    "sar": {"steps": 2},
    "sequence_dab": SINGLE,
    "source": {"output": "markov"},
    "tent": {"episodic": True},
}


def pool(seed: int, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Some images."""
    return stream((count,), seed=seed, dtype=dtype)[0]


class Twins:
    """Makes the same calls to a fleet and to one adapter per stream, and compares."""

    def __init__(self, model: nn.Module, method: str, atol: float, **options: Any) -> None:
        self.method, self.options, self.atol = method, options, atol
        own = ("folder", "limit", "memory", "images_per_pass")
        self.of_method = {k: v for k, v in options.items() if k not in own}
        self.model = model
        self.fleet = dab.Fleet(copy.deepcopy(model), method, **options)
        self.adapters: dict[str, dab.Adapter] = {}

    def adapter(self, stream: str) -> dab.Adapter:
        if stream not in self.adapters:
            model = copy.deepcopy(self.model)
            self.adapters[stream] = dab.create(self.method, model, **self.of_method)
        return self.adapters[stream]

    def call(self, images: Tensor, streams: Sequence[str]) -> None:
        logits = self.fleet(images, streams)
        for one in dict.fromkeys(streams):
            rows = [row for row, of in enumerate(streams) if of == one]
            adapter = self.adapter(one)
            torch.testing.assert_close(
                logits[rows], adapter(images[rows]), rtol=0, atol=self.atol, msg=f"stream {one}"
            )
            assert vars(self.fleet._members[one].adapter.last).keys() == vars(adapter.last).keys()
            last = self.fleet.stream(one).last
            assert (last.updated, last.steps) == (adapter.last.updated, adapter.last.steps)

    def check(self) -> None:
        """The same decisions led here."""
        for one, adapter in self.adapters.items():
            found = self.fleet.stream(one)
            assert found.totals == adapter.totals
            if not found.aside:
                assert found.status == adapter.status
            if adapter.health is not None:
                assert found.health is not None
                assert (found.health.state, found.health.rollbacks, found.health.compared) == (
                    adapter.health.state,
                    adapter.health.rollbacks,
                    adapter.health.compared,
                )
            weights = found.state_dict()["weights"]
            for name, saved in adapter.state_dict()["weights"].items():
                for entry, value in saved.items():
                    torch.testing.assert_close(weights[name][entry], value, rtol=0, atol=self.atol)
            if adapter.buffer is not None:
                assert found.buffer is not None
                assert found.buffer.labels == adapter.buffer.labels


def everything(fleet: dab.Fleet) -> dict[str, Any]:
    """All that a call of a fleet may change, copied."""
    known = {one: fleet.stream(one) for one in (*fleet.streams, *fleet.aside)}
    layers = list(fleet.model.modules())
    return {
        "states": {one: found.state_dict() for one, found in known.items()},
        "last": {one: copy.copy(vars(found.last)) for one, found in known.items()},
        "streams": fleet.streams,
        "model": copy.deepcopy(dict(fleet.model.state_dict())),
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in layers],
        "slot": fleet._passes._slot.values,
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }


def files(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(file.name for file in folder.iterdir())
