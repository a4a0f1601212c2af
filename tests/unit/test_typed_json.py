"""Dataclasses to and from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dab.utils.typed_json import DEEPEST, canonical, from_json, parse, to_json


@dataclass(frozen=True)
class Inner:
    count: int
    words: tuple[str, ...]


@dataclass(frozen=True)
class Outer:
    text: str
    flag: bool
    number: float
    maybe: float | None
    inner: Inner
    inners: tuple[Inner, ...]
    by_name: Mapping[str, int]
    anything: Any
    last: str = "default"


finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
inners = st.builds(Inner, st.integers(), st.lists(st.text(), max_size=3).map(tuple))
outers = st.builds(
    Outer,
    st.text(),
    st.booleans(),
    finite,
    st.none() | finite,
    inners,
    st.lists(inners, max_size=3).map(tuple),
    st.dictionaries(st.text(), st.integers(), max_size=3),
    plain,
)


@given(outers)
def test_what_is_written_is_read(value):
    text = json.dumps(to_json(value))
    assert from_json(Outer, parse(text)) == value
    assert canonical(parse(text)) == canonical(to_json(value))


@given(outers, st.sampled_from([field.name for field in fields(Outer)]), plain)
def test_any_other_value_is_refused_by_name_or_of_the_right_type(value, name, other):
    changed = {**json.loads(json.dumps(to_json(value))), name: other}
    try:
        found = from_json(Outer, changed)
    except ValueError as error:
        assert name in str(error)  # noqa: PT017
    else:
        assert to_json(found) == changed


@given(plain)
def test_any_json_is_refused_or_read(value):
    try:
        from_json(Outer, value)
    except ValueError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_what_is_not_json_is_refused(text):
    with pytest.raises(ValueError, match="is not valid JSON"):
        parse(text)


@pytest.mark.parametrize("depth", [DEEPEST, 500, 5000, 10**6])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused(depth, opening, closing):
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(opening * depth + "0" + closing * depth)
    shallow = DEEPEST - 1
    parse(opening * shallow + "0" + closing * shallow)
