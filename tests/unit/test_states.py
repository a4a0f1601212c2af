"""A state is taken over whole and unharmed by an adapter that it belongs to, or refused."""

from __future__ import annotations

import copy
import math
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.adapter import Adapter
from dab.outputs import outputs
from dab.parts.state_file import checksum, same_state
from dab.testing import net, run, same, stream
from tests.support.adapters import METHODS, quick

Case = TypeVar("Case")


def adapted(method: str, **options: Any) -> Adapter:
    adapter = quick(method, "batchnorm").adapter(**options)
    run(adapter, stream()[:6])
    return adapter


def signed(state: dict[str, Any]) -> dict[str, Any]:
    """The state with a checksum that fits: what a careful forger would write."""
    return {**state, "checksum": checksum({k: v for k, v in state.items() if k != "checksum"})}


def mutations(value: Any) -> Iterator[Any]:
    """Values that are not this one."""
    if isinstance(value, Tensor):
        yield from (None, 1, "x", [1.0], value.to("meta"), value[None])
        if value.ndim > 1 and value.numel():
            yield value.flatten(1)[:, :-1]
            yield torch.cat([value, value], dim=1)
        if value.ndim and value.numel():
            yield value[:1] if len(value) > 1 else value[:0]
            yield value.flatten()[:-1]
            yield value.to_sparse()
            yield value.expand(3, *value.shape)
        if value.numel():
            flipped = value.clone().flatten()
            bits = flipped.view(torch.uint8)
            bits[0] ^= 1
            yield flipped.reshape(value.shape)
        yield value.to(torch.complex64)
        if value.is_floating_point() and value.numel():
            yield torch.full_like(value, math.nan)
            yield torch.full_like(value, math.inf)
            yield value.half() if value.dtype != torch.float16 else value.float()
            yield value.long()
            yield torch.zeros_like(value) if value.any() else torch.ones_like(value)
    elif isinstance(value, bool):
        yield from (not value, 1, None, "x")
    elif isinstance(value, int):
        yield from (-1, value + 1, float(value), str(value), None, math.nan, 10**30, True)
    elif isinstance(value, float):
        yield from (-value - 1, math.nan, math.inf, str(value), None, torch.tensor(value), 10**30)
        yield from (0 if value else 1, 1e300)
    elif isinstance(value, str):
        yield from ("", value + "x", None, 1)
    elif value is None:
        yield from (0, "x", math.nan, torch.zeros(2), {}, [])


def mutated(state: Any) -> Iterator[tuple[str, Any]]:
    """The state with one leaf changed, left out or added, for every leaf."""
    if isinstance(state, dict | list):
        yield from ((f"{odd!r} instead", odd) for odd in (None, {}, []) if odd != state)
    if isinstance(state, dict):
        yield "more", {**state, "more": 1}
        for key, value in state.items():
            yield f"without {key}", {k: v for k, v in state.items() if k != key}
            for path, changed in mutated(value):
                yield f"{key}/{path}", {**state, key: changed}
    elif isinstance(state, list):
        yield "longer", [*state, 1]
        for number, value in enumerate(state):
            yield f"without {number}", state[:number] + state[number + 1 :]
            for path, changed in mutated(value):
                yield f"{number}/{path}", [*state[:number], changed, *state[number + 1 :]]
    else:
        for number, changed in enumerate(mutations(state)):
            yield f"{number}", changed


def spread(cases: list[Case], most: int | None) -> list[Case]:
    """At most so many of the cases, from all over."""
    return cases if most is None else cases[:: math.ceil(len(cases) / most)]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_changed_leaf_is_refused_and_nothing_changes(method):
    options = {} if method == "lame" else {"output": "causal_prior"}
    state = adapted(method, **options).state_dict()
    target = adapted(method, **options)
    target(stream()[6])
    before, weights = target.state_dict(), copy.deepcopy(dict(target.model.state_dict()))
    tried = 0
    for path, changed in spread(list(mutated(state)), 400):
        with pytest.raises(ValueError, match="state"):
            target.load_state_dict(changed)
        tried += 1
        if tried % 50 == 0:
            assert same(target.state_dict(), before), path
            assert same(dict(target.model.state_dict()), weights), path
    assert tried > 50
    assert same(target.state_dict(), before)
    assert same(dict(target.model.state_dict()), weights)
    target.load_state_dict(state)
    assert same(target.state_dict(), state)


def check_forged(method: str, output: str | None, most: int | None = None) -> None:
    """Whatever gets past the checks must be kept as it is, and run the rest of the stream."""
    options = {} if output is None else {"output": output}
    state = adapted(method, **options).state_dict()
    target = quick(method, "batchnorm").adapter(**options)
    target.load_state_dict(signed(state))
    attempts = [
        (path, changed)
        for path, changed in mutated(state)
        if isinstance(changed, dict)
        and not path.startswith(("checksum", "without checksum"))
        and (output is None or path.startswith("output/"))  # the rest is tried without one
    ]
    for path, changed in spread(attempts, most):
        try:
            sealed = signed(changed)
        except Exception:  # no checksum of such a thing
            continue
        target.reset()
        try:
            target.load_state_dict(sealed)
        except ValueError:
            assert target.totals.calls == 0, path
            continue
        try:
            assert same_state(target.state_dict(), sealed) or path == "memory/buffer/None instead"
            assert target.status
            assert all(torch.isfinite(logits).all() for logits in run(target, stream()[6:]))
            assert target.status
            assert target.buffer is None or len(target.buffer.ages) == len(target.buffer)
            target.load_state_dict(target.state_dict())
        except Exception as error:
            raise AssertionError(f"accepted, then failed: {path}") from error


FORGED = [
    *((method, None) for method in dab.methods()),
    *(("tent", output) for output in outputs()),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "output"), FORGED)
def test_a_changed_state_with_a_fitting_checksum_is_refused_or_works(method, output):
    check_forged(method, output, most=100)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(("method", "output"), FORGED)
def test_any_changed_state_with_a_fitting_checksum_is_refused_or_works(method, output):
    check_forged(method, output)


def forged(state: dict[str, Any], value: Any, *path: str) -> dict[str, Any]:
    """The state with another value, and a checksum that fits."""
    changed = copy.deepcopy(state)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return signed(changed)


def test_supports_of_another_width_or_without_a_class_are_refused():
    state = adapted("t3a").state_dict()
    supports = state["memory"]["supports"]
    features, labels = supports["features"], supports["labels"]
    target = quick("t3a", "batchnorm").adapter()
    for wrong in (features[:, :-1], torch.cat([features, features], dim=1), 2 * features):
        with pytest.raises(ValueError, match="features must be a tensor"):
            target.load_state_dict(forged(state, wrong, "memory", "supports", "features"))
    with pytest.raises(ValueError, match="leave out a class"):
        target.load_state_dict(forged(state, labels.clamp(max=4), "memory", "supports", "labels"))
    target.load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("means", Tensor.long),
        ("means", lambda means: means[:, :-1]),
        ("means", lambda means: 2 * means),
        ("beliefs", lambda beliefs: beliefs[:1]),
        ("scores", lambda scores: scores[:1]),
        ("counts", lambda counts: counts[:-1]),
    ],
)
def test_parts_of_the_markov_prior_that_do_not_belong_together_are_refused(name, change):
    adapter = adapted("tent", output="markov")
    state = adapter.state_dict()
    with pytest.raises(ValueError, match=r"must be|belong together|probabilities"):
        adapter.load_state_dict(forged(state, change(state["output"][name]), "output", name))


@pytest.mark.parametrize(
    ("name", "value"), [("updates", 99), ("replaced", 99), ("calls", 0), ("samples", 1)]
)
def test_totals_that_contradict_each_other_are_refused(name, value):
    adapter = adapted("dab")
    with pytest.raises(ValueError, match="totals contradict each other"):
        adapter.load_state_dict(forged(adapter.state_dict(), value, "totals", name))


@pytest.mark.parametrize("method", METHODS)
def test_only_a_buffer_may_be_left_out(method):
    state = adapted(method).state_dict()
    target = quick(method, "batchnorm").adapter()
    for name, part in (state["memory"] or {}).items():
        if isinstance(part, dict) and name != "buffer":
            with pytest.raises(ValueError, match="missing"):
                target.load_state_dict(signed({**state, "memory": {**state["memory"], name: None}}))
    target.load_state_dict(adapted(method).state_dict(buffer=False))
    run(target, stream()[6:])


@pytest.mark.parametrize("method", METHODS)
def test_a_state_of_other_source_weights_is_refused(method):
    state = adapted(method).state_dict()
    model = net("batchnorm")
    with torch.no_grad():
        list(model.parameters())[-1].view(-1)[0] += 1e-3
    other = quick(method, "batchnorm").adapter(model)
    before = other.state_dict()
    with pytest.raises(ValueError, match="other source weights"):
        other.load_state_dict(state)
    assert same(other.state_dict(), before)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("dab", {"lr": 0.5}),
        ("dab", {"trigger": "any"}),
        ("tent", {"momentum": 0.5}),
        ("tent", {"output": "causal_prior"}),
        ("sar", {"rho": 0.1}),
        ("cotta", {"gate": 0.5}),
    ],
)
def test_a_state_of_other_options_is_refused_unless_allowed(method, options):
    state = adapted(method).state_dict()
    other = quick(method, "batchnorm").adapter(**options)
    with pytest.raises(ValueError, match=f"{next(iter(options))}=.*allow_options=True"):
        other.load_state_dict(state)
    if "output" not in options:
        other.load_state_dict(state, allow_options=True)
        assert other.totals == adapted(method).totals
        run(other, stream()[6:])


@pytest.mark.parametrize("method", ["note", "rotta"])
def test_a_state_that_waited_longer_than_this_adapter_does_updates_at_once(method):
    first = dab.create(method, net("layernorm"), capacity=8, update_every=64)
    run(first, stream((40,)))
    second = dab.create(method, net("layernorm"), capacity=8, update_every=16)
    with pytest.raises(ValueError, match="update_every"):
        second.load_state_dict(first.state_dict())
    second.load_state_dict(first.state_dict(), allow_options=True)
    run(second, stream((8, 8)))
    assert second.last.updated or second.totals.updates


@pytest.mark.parametrize("method", METHODS)
def test_a_file_resumes_bit_identically(method, tmp_path: Path):
    whole = quick(method, "batchnorm").adapter()
    expected = run(whole, stream())
    stopped = quick(method, "batchnorm").adapter()
    run(stopped, stream()[:5])
    stopped.save(tmp_path / "made" / "state.pt")
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["state.pt"]
    resumed = quick(method, "batchnorm").adapter(seed=9)
    resumed.load(str(tmp_path / "made" / "state.pt"))
    (tmp_path / "made" / "state.pt").write_bytes(b"")  # nothing hangs on the file any more
    assert same(run(resumed, stream()[5:]), expected[5:])
    assert same(resumed.state_dict(), whole.state_dict())


@pytest.mark.parametrize("method", ["dab", "rotta", "sar"])
def test_a_damaged_file_is_refused(method, tmp_path: Path):
    adapter = adapted(method)
    adapter.save(tmp_path / "state.pt")
    content = (tmp_path / "state.pt").read_bytes()
    target = quick(method, "batchnorm").adapter()
    before = target.state_dict()
    numbers = random.Random(0)
    harmless = 0
    for _ in range(60):
        damaged = bytearray(content)
        damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
        (tmp_path / "damaged.pt").write_bytes(damaged)
        try:
            target.load(tmp_path / "damaged.pt")
        except ValueError:
            assert same(target.state_dict(), before)
        else:  # a bit of padding or of a time stamp
            harmless += 1
            assert same(target.state_dict(), adapter.state_dict())
            target = quick(method, "batchnorm").adapter()
    assert harmless < 60
    for size in (0, 1, len(content) // 2, len(content) - 1):
        (tmp_path / "damaged.pt").write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"damaged\.pt is not a file written by save"):
            target.load(tmp_path / "damaged.pt")
    with pytest.raises(FileNotFoundError):
        target.load(tmp_path / "missing.pt")


def test_a_small_file_that_declares_huge_images_takes_no_memory(tmp_path: Path):
    adapter = dab.DAB(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(3)), 8)
    adapter(torch.rand(8, 3, 8, 8))
    state = adapter.state_dict()
    huge = torch.zeros(1, dtype=torch.uint8).expand(8, 3, 12000, 12000)
    state["images_like"] = torch.empty(0, 3, 12000, 12000)
    stored = {**state["memory"]["buffer"]["storage"], "images": huge}
    buffer = {**state["memory"]["buffer"], "storage": stored}
    for memory in (state["memory"], {**state["memory"], "buffer": buffer}):
        forged = {**state, "memory": memory}
        torch.save(signed(forged) if memory is state["memory"] else forged, tmp_path / "huge.pt")
        assert (tmp_path / "huge.pt").stat().st_size < 30_000
        fresh = dab.DAB(copy.deepcopy(adapter).detach(), 8)
        fresh.reset()
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"images|declares"):
            fresh.load(tmp_path / "huge.pt")
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()


def test_a_state_says_what_it_is_of():
    state = adapted("dab").state_dict()
    assert (state["format"], state["method"]) == (3, "dab")
    assert state["options"]["capacity"] == 8
    assert "seed" not in state["options"]
    for odd in (None, [], "state", 3):
        with pytest.raises(ValueError, match="dictionary"):
            adapted("dab").load_state_dict(odd)


def test_a_buffer_that_does_not_fit_other_options_can_be_left_out():
    full = dab.DAB(net("layernorm"), 16, batch_size=8)
    run(full, stream())
    small = dab.DAB(net("layernorm"), 8, batch_size=8)
    with pytest.raises(ValueError, match=r"save\(path, buffer=False\)"):
        small.load_state_dict(full.state_dict(), allow_options=True)
    small.load_state_dict(full.state_dict(buffer=False), allow_options=True)
    run(small, stream())


def test_allowed_options_relax_only_what_follows_from_them():
    state = adapted("dab").state_dict()
    other = quick("dab", "batchnorm").adapter(lr=0.5)
    trigger = {**state["memory"]["trigger"], "more": 1}
    forged = signed({**state, "memory": {**state["memory"], "trigger": trigger}})
    with pytest.raises(ValueError, match="more"):
        other.load_state_dict(forged, allow_options=True)
    native = quick("dab", "batchnorm").adapter(storage="native")
    native.load_state_dict(state, allow_options=True)
    run(native, stream()[6:])


def test_another_file_is_refused_without_advice_of_torch(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(
        ValueError, match=r"notes\.txt is not a file written by save\(\)"
    ) as refused:
        quick("tent", "layernorm").adapter().load(tmp_path / "notes.txt")
    assert "weights_only" not in str(refused.value)
