"""Fleets: streams that come and go, bad input, what is refused, failures and interrupts."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.fleets import OPTIONS, Twins, everything, pool
from tests.support.interrupts import Interrupt, moments
from tests.support.nets import net

pytestmark = pytest.mark.slow  # together a good part of what `make quick` may take

DAB = {**OPTIONS["dab"], "output": "markov", "guard": True, "lr": 0.02}


def make(method: str = "dab", kind: str = "layernorm", **options: Any) -> dab.Fleet:
    return dab.Fleet(net(kind), method, **{**(DAB if method == "dab" else {}), **options})


def run(fleet: dab.Fleet, calls: int = 4, streams: str = "abcab", seed: int = 0) -> list[Tensor]:
    images = pool(seed, calls * len(streams), torch.float32)
    return [fleet(batch, list(streams)) for batch in images.split(len(streams))]


# Input.


@pytest.mark.parametrize(
    ("streams", "error", "says"),
    [
        (["a", "b"], ValueError, "3 images and 2 stream ids: pass one id per image"),
        ("abc", TypeError, "a list with the id of each image's stream, got 'abc'"),
        (None, TypeError, "a list with the id of each image's stream, got None"),
        (["a", 7, "b"], TypeError, "a stream's id is a string, got an int: 7"),
        (["a", b"b", "c"], TypeError, "got a bytes: b'b'"),
        (["a", "", "c"], ValueError, "the id '' is empty"),
        (["a", "x" * 161, "c"], ValueError, "too long: it takes 161 characters"),
        (["a", "\ud800", "c"], ValueError, "not valid Unicode"),
    ],
)
def test_bad_ids_are_refused_before_anything_changes(streams, error, says):
    fleet = make("tent")
    with pytest.raises(error, match=says):
        fleet(pool(0, 3, torch.float32), streams)
    assert fleet.streams == []


def test_bad_images_are_refused_before_anything_changes():
    fleet = make("tent")
    images = pool(0, 2, torch.float32)
    fleet(images, ["a", "b"])
    before = everything(fleet)
    with pytest.raises(ValueError, match=r"stream 'b': images are .* of shape"):
        fleet(torch.rand(2, 3, 12, 12), ["c", "b"])
    bad = images.clone()
    bad[1, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"samples \[1\] of the batch have NaN"):
        fleet(bad, ["a", "b"])
    assert same(everything(fleet), before)
    assert fleet(torch.rand(2, 3, 12, 12), ["c", "d"]).shape == (2, 6)  # another size of its own


def test_loaders_batches_and_ids_of_any_iterable_are_taken():
    fleet = make("tent")
    images = (pool(0, 3, torch.float32) * 255).to(torch.uint8)
    logits = fleet([images, torch.tensor([1, 2, 3])], (one for one in "aba"))
    assert same(logits, make("tent")(images.float() / 255, ["a", "b", "a"]))


# What is refused.


@pytest.mark.parametrize(
    ("method", "kind", "options", "says"),
    [
        ("cotta", "layernorm", {}, "cotta trains 'patches.weight'.*such as dab or tent"),
        ("memo", "layernorm", {}, "memo trains"),
        ("adacontrast", "layernorm", {}, "adacontrast trains"),
        ("t3a", "layernorm", {}, "t3a reads features of its own"),
        ("tent", "batchnorm", {}, "BatchNorm layer '1' with statistics='batch'.*'?\"source\""),
        ("dab", "batchnorm", {}, "statistics='ema'"),
        ("note", "batchnorm", {}, "statistics='instance'"),
    ],
)
def test_methods_that_differ_in_more_than_norm_parameters_are_refused(method, kind, options, says):
    model = net(kind)
    with pytest.raises(ValueError, match=says):
        dab.Fleet(model, method, **options)
    dab.create(method, model, **options).detach()  # the model is free


def test_batch_norm_without_running_statistics_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192, track_running_stats=False))
    with pytest.raises(ValueError, match="has no running statistics"):
        dab.Fleet(model.append(nn.Linear(192, 4)), "tent", statistics="source")


@pytest.mark.parametrize("how", ["a wrapper", "in place"])
def test_a_compiled_model_is_refused(how):
    model = net("layernorm")
    if how == "in place":
        model.compile(backend="eager")
    else:
        model = torch.compile(model, backend="eager")
    with pytest.raises(ValueError, match=r"as it was before torch\.compile"):
        dab.Fleet(model, "tent")


class Mixing(nn.Module):
    """A classifier in which images influence each other."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net("layernorm")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.inner(images)
        return logits - 0.5 * logits.mean(dim=0)


class TokensFirst(nn.Module):
    """Normalizes (tokens, images, features)."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.norm, self.head = nn.LayerNorm(192 // tokens), nn.Linear(192, 6)

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1).unflatten(1, (self.tokens, -1)).transpose(0, 1)
        return self.head(self.norm(x).transpose(0, 1).flatten(1))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Mixing(), "does not treat the images of a batch one by one"),
        (TokensFirst(3), "does not treat the images of a batch one by one"),
        (TokensFirst(6), "does not treat the images of a batch one by one"),
        (TokensFirst(4), "'norm' gets an input of shape .* not the 3 images"),
    ],
)
def test_models_that_mix_images_are_refused_at_the_first_call(model, says):
    fleet = dab.Fleet(model, "tent")
    with pytest.raises(ValueError, match=f"{says}.*one\nadapter|{says}.*one adapter"):
        fleet(pool(0, 1, torch.float32), ["a"])
    assert fleet.streams == []


def test_a_method_that_runs_with_other_values_of_shared_weights_is_refused():
    fleet = make("tent")
    run(fleet, 1)
    adapter = fleet._members["a"].adapter
    with pytest.raises(ValueError, match=r"'head\.bias' is not a trained parameter"):
        adapter.run(pool(0, 2, torch.float32), {"head.bias": torch.zeros(6)})


@pytest.mark.parametrize("option", [{"limit": 2}, {"memory": 10**6}])
def test_limits_need_a_folder(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))}= needs a folder"):
        make("tent", **option)


def test_options_are_checked():
    with pytest.raises(TypeError, match="dab has no option 'capactiy', did you mean 'capacity'"):
        make("dab", capactiy=4)
    with pytest.raises(ValueError, match="limit must be an integer between 1"):
        make("tent", limit=0, folder="streams")


# The model.


def test_the_model_keeps_its_weights_and_is_returned_as_it_was():
    model = net("layernorm")
    before = copy.deepcopy(dict(model.state_dict()))
    flags = [p.requires_grad for p in model.parameters()], [m.training for m in model.modules()]
    with dab.Fleet(model, "tent", lr=0.1) as fleet:
        run(fleet)
        assert same(dict(model.state_dict()), before)
        with pytest.raises(RuntimeError, match="already belongs to another adapter"):
            dab.create("tent", model)
    assert fleet.detach() is model
    assert flags == (
        [p.requires_grad for p in model.parameters()],
        [m.training for m in model.modules()],
    )
    assert not any("forward" in vars(module) for module in model.modules())
    with pytest.raises(RuntimeError, match="returned by detach"):
        run(fleet)
    assert fleet.stream("a").totals.calls == 4
    del fleet
    dab.Fleet(model, "tent")
    dab.create("tent", model)  # a fleet that nobody holds has returned its model


def test_streams_share_the_network_and_its_source():
    fleet = make("tent", lr=0.1)
    run(fleet)
    a, b = (fleet._members[one].adapter for one in "ab")
    assert a.model is b.model is fleet.model
    assert all(x is y for x, y in zip(a.trained.source, b.trained.source, strict=True))
    assert not same(a.state_dict()["weights"], b.state_dict()["weights"])
    numbers = sum(p.numel() for p in a.trained.parameters)
    # Values and momentum; the rest is the generator's state and an empty batch.
    assert fleet.stream("a").nbytes < 4 * 2 * numbers + 8000


def test_predicting_changes_nothing():
    fleet = make()
    run(fleet)
    before = everything(fleet)
    images = pool(5, 4, torch.float32)
    logits = fleet.predict(images, list("abxa"))
    assert same(everything(fleet), before)
    twin = make()
    run(twin)
    torch.testing.assert_close(logits, twin.predict(images, list("abxa")))
    assert "x" not in fleet


@pytest.mark.parametrize("method", ["tent", "source"])
def test_a_stream_keeps_nothing_of_others(method):
    """Not even as a view of what a shared pass returned."""
    alone, many = (make(method, output="lame") for _ in range(2))
    images = pool(0, 32, torch.float32)
    alone(images[:1], ["0"])
    many(images, [str(number) for number in range(32)])
    assert many.stream("0").nbytes == alone.stream("0").nbytes
    assert many.nbytes == 32 * alone.nbytes


# Looking at streams.


def test_a_stream_shows_how_it_is_doing():
    fleet = make()
    assert len(fleet) == 0
    run(fleet)
    assert fleet.streams == list("abc")
    assert len(fleet) == 3
    assert "a" in fleet
    assert "z" not in fleet
    assert 7 not in fleet
    a = fleet.stream("a")
    assert a.totals.calls == 4
    assert a.totals.samples == 8
    assert a.health is not None
    assert a.health.state in ("healthy", "suspicious", "failed")
    assert a.status
    assert a.last.samples == 2
    assert a.buffer is not None
    assert not a.aside
    assert repr(a).startswith("<stream 'a': ")
    assert 0 < a.nbytes < fleet.nbytes
    with pytest.raises(KeyError, match="no stream 'z'"):
        fleet.stream("z")


def test_streams_are_listed_from_the_least_recently_used():
    fleet = make("tent")
    for one in "abcad":
        fleet(pool(0, 1, torch.float32), [one])
    assert fleet.streams == list("bcad")


# Putting aside, saving and resuming.


@pytest.mark.parametrize("where", ["folder", "memory://fleet/streams"])
def test_streams_beyond_the_limit_are_put_aside_and_brought_back(where, tmp_path):
    folder = tmp_path / "streams" if where == "folder" else where
    twins = Twins(net("layernorm").double(), "dab", 1e-9, limit=2, folder=folder, **DAB)
    images = pool(2, 60)
    for number, batch in enumerate(images.split(3)):
        one = "abcd"[number % 4]
        twins.call(batch, [one, "a", one])
        assert len(twins.fleet) <= 2
    assert sorted(twins.fleet.streams + twins.fleet.aside) == list("abcd")
    twins.check()
    twins.fleet.reset()
    assert twins.fleet.aside == []


def test_a_stream_is_saved_alone(tmp_path):
    fleet = make("tent", folder=tmp_path)
    run(fleet)
    fleet.stream("b").save()
    (file,) = tmp_path.iterdir()
    assert file.name == "b.pt"
    written = file.stat().st_mtime_ns
    fleet.stream("b").save()  # it is up to date
    assert file.stat().st_mtime_ns == written
    resumed = make("tent", folder=tmp_path)
    assert same(resumed.stream("b").state_dict(), fleet.stream("b").state_dict())
    homeless = make("tent")
    run(homeless)
    with pytest.raises(ValueError, match="the fleet has no folder"):
        homeless.stream("b").save()


def test_a_stream_comes_back_bit_for_bit(tmp_path):
    fleet = make(folder=tmp_path)
    run(fleet)
    state = fleet.stream("a").state_dict()
    fleet.put_aside("a")
    assert fleet.aside == ["a"]
    assert "a" not in fleet.streams
    assert fleet.stream("a").aside
    assert same(fleet.stream("a").state_dict(), state)
    assert fleet.aside == ["a"]  # looking at it does not bring it back
    other = make(folder=tmp_path / "other")
    run(other)
    assert same(run(fleet, 3, seed=1), run(other, 3, seed=1))
    assert same(fleet.stream("a").state_dict(), other.stream("a").state_dict())
    with pytest.raises(KeyError, match="no stream 'z' in memory"):
        fleet.put_aside("z")
    plain = make("tent")
    run(plain)
    with pytest.raises(ValueError, match="no folder: create it with folder="):
        plain.put_aside("a")
    with pytest.raises(ValueError, match="no folder: create it with folder="):
        plain.save()


def test_a_call_with_more_streams_than_the_limit_is_refused(tmp_path):
    fleet = make("tent", limit=2, folder=tmp_path)
    with pytest.raises(ValueError, match="a call with 3 streams exceeds limit=2"):
        run(fleet)
    assert fleet.streams == []


def test_memory_is_limited(tmp_path):
    free = make()
    run(free)
    each = free.nbytes // 3
    fleet = make(folder=tmp_path, memory=int(2.5 * each))
    for number in range(20):
        fleet(pool(number, 4, torch.float32), ["abcde"[number % 5]] * 4)
        assert len(fleet) <= 4
    assert fleet.aside
    assert fleet.nbytes < 4 * each


def test_a_new_fleet_resumes_what_is_in_the_folder(tmp_path):
    fleet, twin = make(folder=tmp_path), make()
    run(fleet)
    run(twin)
    fleet.save()
    again = make(folder=tmp_path)
    assert again.streams == []
    assert again.aside == list("abc")
    assert same(run(again, seed=1), run(twin, seed=1))


def test_saving_writes_only_what_has_changed(tmp_path):
    fleet = make(folder=tmp_path)
    run(fleet)
    fleet.save()
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert before.keys() == {"a.pt", "b.pt", "c.pt"}
    run(fleet, 1, "b")
    fleet.predict(pool(0, 1, torch.float32), ["a"])
    fleet.save()
    after = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"b.pt"}


def test_all_streams_are_saved_elsewhere_and_loaded(tmp_path):
    fleet = make(folder=tmp_path / "own")
    run(fleet)
    fleet.put_aside("b")
    fleet.save(tmp_path / "copy")
    states = everything(fleet)["states"]
    in_memory = make()
    run(in_memory, 1, "xyz")
    with_folder = make(folder=tmp_path / "another")
    run(with_folder, 1, "xya")
    with_folder.put_aside("x")
    for other in (in_memory, with_folder):
        other.load(tmp_path / "copy")
        assert same(everything(other)["states"], states)
    assert in_memory.streams == list("abc")
    assert with_folder.aside == list("abc")
    run(fleet, 1)
    fleet.load(tmp_path / "copy")
    assert same(everything(fleet)["states"], states)
    with pytest.raises(FileNotFoundError, match="no streams in"):
        fleet.load(tmp_path / "nowhere")


def test_a_damaged_file_is_named_and_changes_nothing(tmp_path):
    fleet = make(folder=tmp_path / "own")
    run(fleet)
    fleet.save(tmp_path / "copy")
    content = (tmp_path / "copy" / "b.pt").read_bytes()
    content = content[: len(content) // 2]
    (tmp_path / "copy" / "b.pt").write_bytes(content)
    before = everything(fleet)
    with pytest.raises(ValueError, match=r"stream 'b' cannot resume from .*b\.pt"):
        fleet.load(tmp_path / "copy")
    assert same(everything(fleet), before)
    fleet.put_aside("b")
    (tmp_path / "own" / "b.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"reset\('b'\) removes that file"):
        run(fleet, 1)
    fleet.reset("b")
    run(fleet, 1)
    assert fleet.stream("b").totals.calls == 1
    assert fleet.stream("a").totals.calls == 5


def test_files_are_those_of_adapters(tmp_path):
    """A stream can become an adapter of its own, and the other way round."""
    fleet = make()
    run(fleet)
    fleet.stream("a").save(tmp_path / "a.pt")
    adapter = dab.create("dab", net("layernorm"), **DAB)
    adapter.load(tmp_path / "a.pt")
    images = pool(4, 6, torch.float32)
    torch.testing.assert_close(fleet(images, ["a"] * 6), adapter(images), rtol=0, atol=1e-5)
    adapter.save(tmp_path / "back.pt")
    fleet.stream("b").load(tmp_path / "back.pt")
    assert same(fleet.stream("b").state_dict(), adapter.state_dict())
    assert fleet.stream("b").totals == adapter.totals
    other = dab.create("dab", net("layernorm"), **{**DAB, "lr": 0.5})
    other.save(tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"it was saved with lr=0\.5"):
        fleet.stream("b").load(tmp_path / "other.pt")


NAMES = [
    "../../etc/passwd",
    "/absolute",
    ".",
    "..",
    "a/b",
    "a%2fb",
    "Cam",
    "cam",
    "cam.pt",
    "nul\0",
    "new\nline",
    "Kamera für Süd",
    "\N{VIDEO CAMERA}",
    "x" * 160,
]


def test_any_id_has_a_file_of_its_own_inside_the_folder(tmp_path):
    folder = tmp_path / "inner" / "streams"
    fleet = make("tent", folder=folder, lr=0.1)
    fleet(pool(0, len(NAMES), torch.float32), NAMES)
    states = {one: fleet.stream(one).state_dict() for one in NAMES}
    for one in NAMES:
        fleet.put_aside(one)
    assert fleet.aside == sorted(NAMES)
    (folder / "Somebody else's.pt").write_text("x")
    assert fleet.aside == sorted(NAMES)
    names = [file.name for file in folder.iterdir()]
    assert len({name.lower() for name in names}) == len(NAMES) + 1
    assert [file.name for file in tmp_path.iterdir()] == ["inner"]
    assert [file.name for file in (tmp_path / "inner").iterdir()] == ["streams"]
    again = make("tent", folder=folder, lr=0.1)
    assert all(same(again.stream(one).state_dict(), states[one]) for one in NAMES)


def test_a_stream_that_is_reset_starts_from_the_source(tmp_path):
    fleet, fresh = make(folder=tmp_path), make()
    run(fleet)
    fleet.save()
    fleet.reset("a")
    fleet.put_aside("b")
    fleet.stream("b").reset()
    assert "a" not in fleet
    assert "b" not in fleet
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]
    assert same(run(fleet, streams="abab"), run(fresh, streams="abab"))
    with pytest.raises(KeyError, match="no stream 'z'"):
        fleet.reset("z")
    fleet.reset()
    assert fleet.streams == []
    assert list(tmp_path.iterdir()) == []


# Failures, interrupts and threads.


class Faulty(nn.Module):
    """A classifier that fails in a chosen pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.passes_left = -1

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        self._count()
        if logits.requires_grad:
            logits.register_hook(lambda _: self._count())
        return logits

    def _count(self) -> None:
        self.passes_left -= 1
        if self.passes_left == -1:
            raise RuntimeError("in a pass")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dab", "sar"])
def test_a_failure_in_any_pass_changes_no_stream(method):
    options = {**OPTIONS[method], "output": "markov", "guard": True}

    def create() -> dab.Fleet:
        return dab.Fleet(Faulty(net("layernorm")), method, images_per_pass=6, **options)

    fleet, twin = create(), create()
    failures = 0
    for number, batch in enumerate(pool(0, 24, torch.float32).split(8)):
        streams = list("aabcabcd"[: 8 - number % 2] + "e" * (number % 2))
        before = everything(fleet)
        for passes in range(100):
            fleet.model.passes_left = passes
            try:
                logits = fleet(batch, streams)
                break
            except RuntimeError:
                failures += 1
                assert same(everything(fleet), before), passes
        fleet.model.passes_left = -1
        assert same(logits, twin(batch, streams))
        assert same(everything(fleet), everything(twin))
    assert failures > 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("operation", ["call", "put aside", "reset"])
def test_an_interrupt_leaves_all_streams_as_before_or_after(operation, tmp_path):
    images = pool(7, 6, torch.float32)
    operations = {
        "call": lambda fleet: fleet(images, list("abcabd")),
        "put aside": lambda fleet: fleet.put_aside("b"),
        "reset": lambda fleet: fleet.reset("b"),
    }
    start = make()
    run(start, 3, "abcabc")
    start.save(tmp_path / "start")
    numbers = iter(range(10**6))

    def create() -> dab.Fleet:
        fleet = make(folder=tmp_path / str(next(numbers)))
        fleet.load(tmp_path / "start")
        fleet(pool(8, 3, torch.float32), list("abc"))
        return fleet

    def states(fleet: dab.Fleet) -> Any:
        found = everything(fleet)
        del found["streams"], found["last"]  # being aside is no difference
        return found

    fleet = create()
    before = states(fleet)
    found = moments(lambda: operations[operation](fleet))
    after = states(fleet)
    interrupts = 0
    fleet = create()
    most = 24 if operation == "call" else 12
    for moment in random.Random(operation).sample(found, most):
        try:
            with Interrupt(moment):
                operations[operation](fleet)
        except KeyboardInterrupt:
            interrupts += 1
            now = states(fleet)
            assert same(now, before) or same(now, after), moment
            if operation == "put aside":
                assert ("b" in fleet.streams) != ("b" in fleet.aside)
        if operation != "call" or not same(states(fleet), before):
            fleet = create()
    assert interrupts > most // 4
    operations[operation](fleet)
    assert same(states(fleet), after)


def test_a_call_inside_a_call_is_refused():
    fleet = make()
    refused = []

    def hook(*_: Any) -> None:
        for reenter in (
            fleet.save,
            fleet.reset,
            lambda: run(fleet, 1),
            lambda: fleet.stream("a").status,
        ):
            with pytest.raises((RuntimeError, KeyError), match=r"after the call|no stream"):
                reenter()
            refused.append(1)

    fleet.model.register_forward_hook(hook)
    logits = run(fleet)
    assert refused
    assert same(logits, run(make()))


def test_calls_of_several_threads_run_one_after_the_other():
    images = pool(0, 48, torch.float32)
    fleet, twin = make(), make()
    fleet.predict(images[:1], ["a"])

    def work(one: str, part: Tensor) -> None:
        for batch in part.split(3):
            fleet(batch, [one] * len(batch))

    parts = dict(zip("abcd", images.split(12), strict=True))
    threads = [threading.Thread(target=work, args=item) for item in parts.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, part in parts.items():
        for batch in part.split(3):
            twin(batch, [one] * len(batch))
        assert same(fleet.stream(one).state_dict(), twin.stream(one).state_dict())


def test_an_error_in_one_stream_undoes_the_call_of_all():
    fleet = make("tent", lr=0.1)
    run(fleet)
    before = everything(fleet)
    adapter = fleet._members["c"].adapter

    def fail(images: Tensor, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            loss = logits.square().mean()
        assert adapter.learn(loss)
        raise RuntimeError("of one stream")

    adapter.adapt = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="of one stream"):
        run(fleet, 1, "abcd")
    del adapter.adapt
    assert same(everything(fleet), before)


class Saved:
    """A tensor that autograd saves for a backward pass."""

    alive: ClassVar[WeakSet[Saved]] = WeakSet()
    most = 0

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # otherwise a graph would contain itself
        self.alive.add(self)
        Saved.most = max(Saved.most, len(self.alive))


@pytest.mark.parametrize("streams", ["aaaaaaaa", "abababab"])
def test_updates_of_a_call_let_go_of_their_activations(streams):
    most = []
    for update_every in (4, 1):
        fleet = make("note", capacity=8, update_every=update_every)
        fleet(pool(0, 8, torch.float32), list(streams))
        Saved.most = 0
        with torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor):
            fleet(pool(1, 8, torch.float32), list(streams))
        most.append(Saved.most)
        assert not Saved.alive
    assert fleet.stream("a").last.steps >= 4
    assert 0 < most[1] <= 1.5 * most[0]


def test_a_stream_with_bad_numbers_does_not_disturb_the_others():
    """Its own answers fall back to the source, as for an adapter."""
    twins = Twins(net("layernorm").double(), "tent", 1e-9, lr=0.1)
    images = pool(3, 24)
    for batch in images[:12].split(6):
        twins.call(batch, list("abcabc"))
    for trained in (twins.fleet._members["b"].adapter.trained, twins.adapters["b"].trained):
        with torch.no_grad():
            for master in trained.masters:
                master.mul_(1e300)
    for batch in images[12:].split(6):
        twins.call(batch, list("abcabc"))
    twins.check()
    assert twins.adapters["b"].totals.restored == 1
