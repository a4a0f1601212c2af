"""The adapter of one stream: an ordinary one, but for the model, which it shares."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from dab.adapter import Adapter
from dab.fleet.passes import Passes
from dab.fleet.turns import StreamFeatures, StreamNetwork, StreamParameters, Transcript
from dab.parts.features import Features, eager_attributes
from dab.parts.layers import batch_norms, norm_layers

__all__ = ["Member", "check_method", "create_member"]


def check_method(adapter: Adapter) -> None:
    """Refuse a method that differs between streams in more than a fleet can keep apart."""
    if any(eager_attributes(module) for module in adapter.model.modules()):
        raise ValueError(
            "the model is compiled, and would ignore the values of each stream: pass it to the "
            "fleet as it was before torch.compile"
        )
    otherwise = (
        "use a method that trains nothing else, such as dab or tent, or one adapter per stream"
    )
    layers = norm_layers(adapter.model).values()
    norms = {id(p) for layer in layers for p in layer.parameters(recurse=False)}
    for name, parameter in zip(adapter.trained.names, adapter.trained.parameters, strict=True):
        if id(parameter) not in norms:
            raise ValueError(
                f"{adapter.name} trains {name!r}, and the streams of a fleet share all weights but "
                f"those of normalization layers: {otherwise}"
            )
    for name, layer in batch_norms(adapter.model).items():
        if layer.running_mean is None:
            raise ValueError(
                f"BatchNorm layer {name!r} has no running statistics, so it would normalize the "
                "images of a stream with those of others: use one adapter per stream"
            )
        if adapter.statistics.kind != "source":
            raise ValueError(
                f"BatchNorm layer {name!r} with statistics={adapter.statistics.kind!r} would "
                "normalize the images of a stream with those of others: pass "
                'statistics="source", or use one adapter per stream'
            )
    for name, part in vars(adapter).items():
        if isinstance(part, Features) and name != "features":
            raise ValueError(
                f"{adapter.name} reads features of its own ({name}), which a fleet does not "
                f"share: {otherwise}"
            )


@dataclass(eq=False)
class Member:
    """A stream in memory.

    Args:
        adapter: of the stream.
        transcript: where it asks for passes.
    """

    adapter: Adapter
    transcript: Transcript


def create_member(template: Adapter, passes: Passes) -> Member:
    """A stream that has seen nothing: a copy of an adapter with all but its model."""
    transcript = Transcript(passes)
    trained = StreamParameters(template.trained, transcript)
    network = StreamNetwork(template.model, trained, transcript)
    constants = [getattr(template, name) for name in template.constants]
    same = [template.model, *template.model.modules(), template.borrowed, template.notices]
    instead: dict[int, Any] = {id(part): part for part in (*same, *constants)}
    instead[id(template.trained)] = trained
    instead[id(template.network)] = network
    if template.features is not None:
        called = callable(template.features.source)  # without a state of its own
        instead[id(template.features)] = template.features if called else StreamFeatures(network)
    return Member(deepcopy(template, instead), transcript)
