"""What a check runs on: a method with its options and a net."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from dab import registry
from dab.adapter import Adapter
from dab.testing.nets import CLASSES, net

__all__ = ["Case", "run"]


@dataclass(frozen=True)
class Case:
    """A method with its options on one kind of net.

    Args:
        method: a registered name, or the class.
        options: passed to the method. Choose them so that it adapts within 65 images.
        net: one of `NETS`, or a function from a number of classes to a classifier of 3 x 8 x 8
            and 3 x 16 x 16 images that returns equal weights for equal calls.

    >>> case = Case("dab", {"capacity": 8, "batch_size": 8})
    >>> case
    DAB on layernorm
    >>> case.adapter().totals.calls
    0
    """

    method: str | type[Adapter]
    options: Mapping[str, Any] = field(default_factory=dict)
    net: str | Callable[[int], nn.Module] = "layernorm"

    @property
    def cls(self) -> type[Adapter]:
        cls = registry.method(self.method) if isinstance(self.method, str) else self.method
        if not hasattr(cls, "name"):
            raise ValueError(f'{cls.__name__} has no name: decorate it with @dab.register("...")')
        return cls

    def model(self, classes: int = CLASSES) -> nn.Module:
        """A new copy of the net."""
        return net(self.net, classes) if isinstance(self.net, str) else self.net(classes)

    def adapter(self, model: nn.Module | None = None, **options: Any) -> Adapter:
        """A new adapter, on a new copy of the net unless a model is given."""
        make: Callable[..., Adapter] = self.cls
        return make(self.model() if model is None else model, **{**self.options, **options})

    def __repr__(self) -> str:
        return f"{self.cls.__name__} on {getattr(self.net, '__name__', self.net)}"


def run(adapter: Adapter, batches: Iterable[Tensor]) -> list[Tensor]:
    """The logits of every batch."""
    return [adapter(images) for images in batches]
