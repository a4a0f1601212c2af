"""Output corrections: what is answered may differ from what the model says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Annotated, Any, ClassVar, TypeVar

from torch import Tensor

from dab.parts.options import checked
from dab.utils.registry import Registry

__all__ = ["OUTPUTS", "Output", "OutputOption", "create_output", "outputs", "register_output"]

OUTPUTS: Registry[type[Output]] = Registry("output")

Kind = TypeVar("Kind", bound=type["Output"])


class Output(ABC):
    """Corrects the logits of a batch after the method has learned from the uncorrected ones.

    Such a correction reads the order of the labels off the stream: it assumes that neighbors in
    time belong together, and is worth as much as that is true.
    """

    needs_features: ClassVar[bool] = False
    name: ClassVar[str]  # set by `register_output`

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__:
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The corrected logits; whatever is remembered of the stream moves on."""

    def reset(self) -> None:
        """Forget the stream."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what another correction of this kind remembers."""


def register_output(name: str) -> Callable[[Kind], Kind]:
    """Class decorator that makes a correction known under a name."""

    def decorate(cls: Kind) -> Kind:
        OUTPUTS.register(name)(cls)
        cls.name = name
        return cls

    return decorate


def outputs() -> list[str]:
    """The names of all output corrections, sorted."""
    return OUTPUTS.names()


def create_output(output: Output | str | None) -> Output | None:
    """A correction of an adapter's own, from a name or an example.

    >>> create_output("prior")
    Traceback (most recent call last):
    ValueError: unknown output 'prior'; did you mean 'batch_prior'? available: batch_prior, ...
    """
    if isinstance(output, str):
        return OUTPUTS[output]()
    # A copy: two adapters given one object have two streams.
    return deepcopy(output)


class _Known:
    """The condition on `output=`; the names are known once all corrections are registered."""

    @property
    def words(self) -> str:
        return f"of {', '.join(outputs())}"

    def check(self, value: Any) -> bool:
        return not isinstance(value, str) or value in OUTPUTS


OutputOption = Annotated[Output | str | None, _Known()]
