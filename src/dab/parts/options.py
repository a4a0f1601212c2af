"""Options with ranges, declared in a constructor's signature and checked before it runs."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union

import torch
from typing_extensions import is_typeddict

__all__ = [
    "Capacity",
    "Count",
    "Decay",
    "Device",
    "Meets",
    "Momentum",
    "NonNegative",
    "Option",
    "Positive",
    "Range",
    "Rate",
    "Seed",
    "Share",
    "check_options",
    "checked",
    "options_of",
    "signature_of",
]


@dataclass(frozen=True)
class Range:
    """The numbers an option accepts: `least` and `most` are included, `above` and `below` are not.

    >>> Range(0, below=1).words
    'of at least 0 and less than 1'
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def words(self) -> str:
        if self.least is not None and self.most is not None:
            return f"between {self.least:,} and {self.most:,}"
        bounds = (
            ("of at least", self.least),
            ("greater than", self.above),
            ("of at most", self.most),
            ("less than", self.below),
        )
        return " and ".join(f"{words} {bound:,}" for words, bound in bounds if bound is not None)

    def check(self, value: Any) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(frozen=True)
class Meets:
    """Any other condition on an option: a function, and what it requires in words."""

    condition: Callable[[Any], bool]
    words: str

    def check(self, value: Any) -> bool:
        return self.condition(value)


def _is_device(value: Any) -> bool:
    try:
        return value is None or not torch.empty(0, device=value).is_meta
    except (RuntimeError, AssertionError):  # the latter from a torch without that backend
        return False


Rate = Annotated[float, Range(above=0)]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Momentum = Annotated[float, Range(0, below=1)]
Decay = Annotated[float, Range(above=0, below=1)]
Count = Annotated[int, Range(1, 2**31 - 1)]
Capacity = Annotated[int, Range(1, 2**24)]
Seed = Annotated[int, Range(0, 2**64 - 1)]
Device = Annotated[torch.device | str | None, Meets(_is_device, "that is available, such as 'cpu'")]

_NAMES = {float: "a number", int: "an integer", bool: "True or False", str: "a string"}


@dataclass(frozen=True)
class Option:
    """One option of a method or an output correction."""

    name: str
    annotation: Any
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def words(self) -> str:
        """What the option accepts.

        >>> Option("lr", Rate).words, Option("layers", Literal["all", "early"] | None).words
        ('a number greater than 0', "'all', 'early' or None")
        """
        return _words(self.annotation)

    def check(self, value: Any) -> Any:
        """The value as a plain Python object, or an error that names the option.

        >>> Option("lr", Rate).check(float("nan"))
        Traceback (most recent call last):
        ValueError: lr must be a number greater than 0, got nan
        """
        try:
            return _fitted(self.annotation, value)
        except (TypeError, ValueError) as error:
            why = str(error) or f"{self.name} must be {self.words}, got {_shown(value)}"
            raise type(error)(why) from None


def options_of(cls: type) -> list[Option]:
    """The options that a class declares in its constructor, in order, without the model.

    >>> from dab.methods import TENT
    >>> [(option.name, option.words, option.default) for option in options_of(TENT)][:2]
    [('optimizer', "'sgd', 'adam' or 'adamw'", 'sgd'), ('lr', 'a number greater than 0', 0.00025)]
    """
    return [option for option in _declared(cls) if option.name != "model"]


def check_options(cls: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options by name, without a model; the values as plain Python objects.

    Raises TypeError or ValueError that names the first wrong option.

    >>> from dab.methods import TENT
    >>> check_options(TENT, {"lr": 1})
    {'lr': 1.0}
    >>> check_options(TENT, {"momentun": 0.9})
    Traceback (most recent call last):
    TypeError: tent has no option 'momentun', did you mean 'momentum'? It has: optimizer, lr, ...
    """
    known = {option.name: option for option in options_of(cls)}
    for name in options:
        if name not in known:
            owner = getattr(cls, "name", cls.__name__)
            close = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]!r}? It" if close else "; it"
            raise TypeError(f"{owner} has no option {name!r}{hint} has: {', '.join(known)}")
    return {name: known[name].check(value) for name, value in options.items()}


Init = TypeVar("Init", bound=Callable[..., None])


def checked(init: Init) -> Init:
    """A constructor that checks its arguments first and keeps them in `self.options`.

    Only the outermost constructor of a class does so, because it computes what it passes on.
    """

    @functools.wraps(init)
    def check_first(self: Any, *arguments: Any, **named: Any) -> None:
        if "options" not in self.__dict__:
            cls: type = type(self)
            bound = inspect.signature(cls).bind(*arguments, **named)
            bound.apply_defaults()
            for option in _declared(cls):
                if option.name in bound.arguments:
                    fitted = option.check(bound.arguments[option.name])
                    bound.arguments[option.name] = fitted
            self.options = {
                name: value
                for name, value in bound.arguments.items()
                if value is None or type(value) in (bool, int, float, str)
            }
            arguments, named = bound.args, bound.kwargs
        try:
            init(self, *arguments, **named)
        except BaseException:
            if "borrowed" in self.__dict__:
                self.borrowed.end()  # a failure leaves the model unchanged
            raise

    return typing.cast(Init, check_first)


def signature_of(cls: type, defaults: Mapping[str, Any]) -> inspect.Signature:
    """How to call a class, with the options that `**common: Unpack[...]` stands for by name.

    Args:
        cls: its constructor may end in a ** that is annotated with a TypedDict.
        defaults: of the options in that TypedDict, in the order in which to list them.
    """
    own = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return inspect.Signature(own)
    *own, rest = own
    common = _common(cls.__init__)  # type: ignore[misc]
    if not common:
        raise TypeError(
            f"{cls.__name__}: say which options **{rest.name} stands for: annotate it as "
            "Unpack[Training], with Training from dab.common"
        )
    named = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=common[name].written
        )
        for name, default in defaults.items()
        if name in common
    ]
    return inspect.Signature([*own, *named])


class _Type(NamedTuple):
    written: Any  # as in the source: a name is shorter than what it stands for
    resolved: Any


@functools.lru_cache(maxsize=256)
def _common(init: Callable[..., None]) -> dict[str, _Type]:
    """The options that a constructor's ** stands for, by the TypedDict in its annotation."""
    *_, rest = inspect.signature(init).parameters.values()
    if rest.kind is not rest.VAR_KEYWORD:
        return {}
    unpacked: Any = next(iter(typing.get_args(_resolved(rest.annotation, init))), None)
    declared: Any = typing.get_origin(unpacked) or unpacked
    if not is_typeddict(declared):
        return {}
    chosen = typing.get_args(unpacked) or [p.__default__ for p in declared.__parameters__]
    types = dict(zip(declared.__parameters__, chosen, strict=True))
    written = {name: a.__forward_arg__ for name, a in declared.__annotations__.items()}
    hints = typing.get_type_hints(declared, include_extras=True)
    return {
        name: _Type(types.get(hint, written[name]), types.get(hint, hint))
        for name, hint in hints.items()
    }


@functools.lru_cache(maxsize=256)
def _declared(cls: type) -> tuple[Option, ...]:
    init = cls.__init__  # type: ignore[misc]
    common = _common(init)
    return tuple(
        Option(
            p.name,
            common[p.name].resolved if p.name in common else _resolved(p.annotation, init),
            p.default,
        )
        for p in inspect.signature(cls).parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )


def _resolved(annotation: Any, init: Callable[..., None]) -> Any:
    """An annotation as an object; Any if it is only imported for type checkers."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, getattr(inspect.unwrap(init), "__globals__", {}))
    except Exception:
        return Any


def _fitted(annotation: Any, value: Any) -> Any:
    """The value if it is of the annotated kind: TypeError for another type, ValueError for range.

    Annotations that do not constrain plain values accept anything.
    """
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        kind, *conditions = typing.get_args(annotation)
        fitted = _fitted(kind, value)
        if not all(condition.check(fitted) for condition in conditions):
            raise ValueError
        return fitted
    if origin in (Union, types.UnionType):
        return _fitted_to_one(typing.get_args(annotation), value)
    if origin is Literal:
        if not isinstance(value, str):
            raise TypeError
        if value not in typing.get_args(annotation):
            raise ValueError
        return value
    if annotation is None or annotation is type(None):
        if value is not None:
            raise TypeError
        return None
    if annotation in (int, float):
        return _number(annotation, value)
    kind = annotation if origin is None else origin
    letters = kind is Iterable and isinstance(value, str)  # a string is not meant
    if isinstance(kind, type) and kind is not Any and (letters or not isinstance(value, kind)):
        raise TypeError
    return value


def _fitted_to_one(kinds: tuple[Any, ...], value: Any) -> Any:
    failures: set[type[Exception]] = set()
    for kind in kinds:
        try:
            return _fitted(kind, value)
        except (TypeError, ValueError) as error:  # noqa: PERF203
            failures.add(type(error))  # not the error, whose traceback would keep all frames
    # If the value has one of the types, its range is wrong.
    raise ValueError if ValueError in failures else TypeError


def _number(kind: type, value: Any) -> Any:
    """An int or a finite float, also of NumPy; a bool is neither."""
    if isinstance(value, bool) or not isinstance(value, Integral if kind is int else Real):
        raise TypeError
    if kind is int:
        return operator.index(value)  # type: ignore[arg-type]
    try:
        number = float(value)
    except OverflowError:
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


def _words(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        kind, *conditions = typing.get_args(annotation)
        return " ".join([_words(kind), *(condition.words for condition in conditions)])
    if origin in (Union, types.UnionType):
        return _listed([_words(kind) for kind in typing.get_args(annotation)])
    if origin is Literal:
        return _listed([repr(value) for value in typing.get_args(annotation)])
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is Any or isinstance(annotation, TypeVar):
        return "anything"
    kind = annotation if origin is None else origin
    if kind in _NAMES:
        return _NAMES[kind]
    name = getattr(kind, "__name__", str(kind))
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _listed(words: list[str]) -> str:
    """Alternatives, with those of a nested Literal in the same list."""
    flat = ", ".join(words[:-1]).replace(" or ", ", ")
    return f"{flat} or {words[-1]}" if flat else words[-1]


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"a {type(value).__name__}"
