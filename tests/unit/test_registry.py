"""Things by name."""

from __future__ import annotations

import pytest

from dab.utils.registry import Registry


def make(name: str, module: str = "a") -> type:
    return type(name, (), {"__module__": module, "__qualname__": name})


def test_entries_are_found_by_name():
    registry: Registry[type] = Registry("shape")
    square, circle = make("Square"), make("Circle")
    assert registry.register("square")(square) is square
    registry.register("circle")(circle)
    assert registry.names() == list(registry) == ["circle", "square"]
    assert registry["circle"] is circle
    assert "circle" in registry
    assert "line" not in registry


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sqare", "unknown shape 'sqare'; did you mean 'square'\\? available: circle, square"),
        ("xyz", "unknown shape 'xyz'; available: circle, square"),
    ],
)
def test_an_unknown_name_is_refused_with_a_similar_one(name, message):
    registry: Registry[type] = Registry("shape")
    for known in ("square", "circle"):
        registry.register(known)(make(known))
    with pytest.raises(ValueError, match=message):
        registry[name]


def test_a_name_is_taken_once_but_for_a_reloaded_module():
    registry: Registry[type] = Registry("shape")
    registry.register("square")(make("Square"))
    again = make("Square")
    registry.register("square")(again)
    assert registry["square"] is again
    for other in (make("Square", "b"), make("Other")):
        with pytest.raises(ValueError, match="the shape 'square' is already registered"):
            registry.register("square")(other)
    assert registry["square"] is again


def test_functions_and_other_objects_can_be_registered():
    registry: Registry[object] = Registry("thing")
    registry.register("one")(len)
    registry.register("two")(2)
    assert (registry["one"], registry["two"]) == (len, 2)
