"""Output corrections: change the returned logits."""

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
    """Corrects the logits of a batch; most methods learn from the uncorrected ones.

    Such a correction exploits the label order of the stream: it assumes that neighbors in time
    belong together, and helps only to that extent.
    """

    needs_features: ClassVar[bool] = False
    name: ClassVar[str]  # set by `register_output`

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__init__" in cls.__dict__:
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        """The corrected logits; also updates what is remembered of the stream."""

    @property
    def reliance(self) -> float:
        """How far it relies on the order of the stream at the moment, from 0 to 1."""
        return 1.0

    def shares(self) -> dict[str, float]:
        """What the correction now relies on, by name, in shares that sum to 1; reports draw them.

        Empty if there is nothing to distinguish.
        """
        return {}

    def reset(self) -> None:
        """Forget the stream."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what another correction of this kind remembers."""


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
    """A correction for one adapter, from a name or a copy of an instance.

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
        if isinstance(value, str):
            _ = OUTPUTS[value]  # whose error suggests a similar name
        return True


OutputOption = Annotated[Output | str | None, _Known()]
