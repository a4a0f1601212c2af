"""Results that no run gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dab.benchmark import Cell, Result
from dab.benchmark.results.identity import ComputeCard, DataCard, ModelCard, RunCard

DOMAINS = ("fog", "gaussian_noise")


def made_up(
    method: str,
    errors: Sequence[float],
    *,
    data: str = "imagenet-c",
    setting: str = "correlated",
    seed: int = 0,
    source_error: float | None = 60.0,
    domains: Sequence[str] = DOMAINS,
    update_rate: float = 0.25,
    speed: float = 100.0,
    memory: float = 500.0,
    batch_size: int = 64,
    model: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """A result with these errors by domain."""
    card = RunCard(
        method=method,
        code="d4e5",
        options=Cell(method, options).all_options(),
        data=DataCard(data, "a1b2", 64, tuple(domains), 5),
        model=ModelCard("a net", "e5f6", model or {}),
        compute=ComputeCard("cpu", "fp32", False, 1),
        setting=setting,
        seed=seed,
        batch_size=batch_size,
        versions={},
        source_error=None if method == "source" else source_error,
        source_images=None,
        published_as=data.replace("-", "_") if data.startswith("imagenet") else None,
    )
    return Result(
        card=card,
        error=sum(errors) / len(errors),
        errors=dict(zip(domains, errors, strict=True)),
        window=64,
        windows=(0.0,),
        predictions="c3d4",
        updates=1,
        update_rate=update_rate,
        admitted=0,
        skipped=0,
        seconds=1.0,
        images_per_second=speed,
        peak_memory_mib=memory,
    )
