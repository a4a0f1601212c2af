"""What every method promises, one function per promise."""

from __future__ import annotations

import copy
import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dab.adapter import Adapter
from dab.testing.case import Case, run
from dab.testing.equality import same
from dab.testing.nets import CLASSES, NETS, SIZE, stream

__all__ = ["check_method", "checks"]

Check = Callable[[Case], None]

_CHECKS: list[Check] = []


def checks() -> list[Check]:
    """All checks of the contract. Each takes a `Case` and raises an AssertionError if it fails."""
    return list(_CHECKS)


def check_method(
    method: str | type[Adapter],
    options: Mapping[str, Any] | None = None,
    *,
    nets: Iterable[str | Callable[[int], nn.Module]] = NETS,
) -> None:
    """Run every check of the contract on a method; raise an AssertionError at the first that fails.

    The checks cover logits and counters, `predict`, `reset`, seeds, saving and resuming, refused
    inputs and states, `no_grad` and `inference_mode`, memory layouts, other precisions, non-finite
    outputs, copies, and bounded memory. They use tiny nets and a stream of 65 images, and take
    seconds.

    Args:
        method: a registered name, or the class.
        options: passed to the method. Choose them so that it adapts within 65 images.
        nets: the nets to check it on, as in `Case`.

    >>> import dab.testing
    >>> dab.testing.check_method("dab", {"capacity": 8, "batch_size": 8}, nets=["layernorm"])

    The error names the promise that a method breaks:

    >>> from dab.methods import TENT
    >>> class Darkens(TENT):
    ...     def adapt(self, images, logits):
    ...         images.mul_(0.9)
    ...         return super().adapt(images, logits)
    >>> dab.testing.check_method(Darkens, nets=["layernorm"])
    Traceback (most recent call last):
    AssertionError: Darkens on layernorm fails check_inputs_are_unchanged: the method changed ...
    """
    for net in nets:
        case = Case(method, options or {}, net)
        case.adapter()  # an unknown name or option is an error of the caller
        for check in _CHECKS:
            _run_check(check, case)


def _run_check(check: Check, case: Case) -> None:
    try:
        check(case)
    except Exception as error:  # a method may fail in ways of its own
        reason = str(error) if isinstance(error, AssertionError) else repr(error)
        raise AssertionError(f"{case!r} fails {check.__name__}: {reason}") from error


def _check(function: Check) -> Check:
    """Add a check. The simplest promises come first, so that a failure names its cause."""
    _CHECKS.append(function)
    return function


def require(holds: object, message: str) -> None:
    """An assertion that `python -O` keeps."""
    if not holds:
        raise AssertionError(message)


@contextmanager
def refusal(error: type[Exception], pattern: str, what: str) -> Iterator[None]:
    """Require an error whose message matches."""
    try:
        yield
    except error as raised:
        require(
            re.search(pattern, str(raised)),
            f"the error for {what} does not say {pattern!r} but {str(raised)!r}",
        )
    else:
        raise AssertionError(f"{what} must raise {error.__name__}")


Snapshot = tuple[dict[str, Any], dict[str, Any], Any]


def snapshot(adapter: Adapter) -> Snapshot:
    """A copy of all that a call may change."""
    return copy.deepcopy((adapter.state_dict(), dict(adapter.model.state_dict()), adapter.last))


def require_unchanged(adapter: Adapter, before: Snapshot, by: str) -> None:
    state, weights, last = snapshot(adapter)
    changed = [key for key in before[0] if not same(state.get(key), before[0][key])]
    require(not changed, f"{by} changed {', '.join(changed)} in the state")
    require(state.keys() == before[0].keys(), f"{by} changed the keys of the state")
    require(same(weights, before[1]), f"{by} changed the model")
    require(last == before[2], f"{by} changed adapter.last")


def trains(adapter: Adapter) -> bool:
    return bool(adapter.trained.names)


def saved(state: Any) -> Any:
    """The state after torch.save and torch.load, weights only."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# Calls


@_check
def check_logits(case: Case) -> None:
    """One row of detached, finite logits per image, for batches of any size."""
    adapter = case.adapter()
    for images in stream((1, 3, 8, 20)):
        logits = adapter(images)
        batch = f"for {len(images)} images"
        shape = tuple(logits.shape)
        require(shape == (len(images), CLASSES), f"the logits have shape {shape} {batch}")
        require(not logits.requires_grad, "the logits require a gradient: detach them")
        require(logits.device == images.device, f"the logits are on {logits.device} {batch}")
        require(torch.isfinite(logits).all(), f"the logits are not finite {batch}")
        samples = adapter.last.samples
        require(samples == len(images), f"last.samples is {samples} {batch}")


@_check
def check_adapts_and_counts(case: Case) -> None:
    """Updates happen, are counted, and change weights; a method that trains nothing has none."""
    adapter = case.adapter()
    source = copy.deepcopy(dict(adapter.model.state_dict()))
    batches = stream()
    updates = 0
    for images in batches:
        adapter(images)
        updates += adapter.last.updated
    totals, samples = adapter.totals, sum(map(len, batches))
    require(totals.calls == len(batches), f"totals.calls is {totals.calls}, not {len(batches)}")
    require(totals.samples == samples, f"totals.samples is {totals.samples}, not {samples}")
    require(totals.updates == updates, f"totals.updates is {totals.updates}, not {updates}")
    require(totals.skipped == 0, f"totals.skipped is {totals.skipped}, though all was finite")
    adapted = not same(dict(adapter.model.state_dict()), source)
    require(
        adapted == (updates > 0),
        f"{updates} updates were counted, but the weights {'changed' if adapted else 'did not'}",
    )
    require(
        adapted == trains(adapter),
        f"no update within {samples} images: pass options that let the method adapt sooner"
        if trains(adapter)
        else "weights changed that are not in adapter.trained",
    )


@_check
def check_inputs_are_unchanged(case: Case) -> None:
    """Images that are passed in are not changed."""
    batches = stream()
    run(case.adapter(), batches)
    require(same(batches, stream()), "the method changed its input images in place")


@_check
def check_predict_changes_nothing(case: Case) -> None:
    """`predict` returns the same logits twice and leaves no trace."""
    adapter = case.adapter()
    batches = stream()
    run(adapter, batches[:6])
    before = snapshot(adapter)
    first, second = adapter.predict(batches[6]), adapter.predict(batches[6])
    require(torch.equal(first, second), "predict returned different logits for the same images")
    require_unchanged(adapter, before, by="predict")


@_check
def check_seed(case: Case) -> None:
    """One seed gives one result; the global random generator is neither read nor advanced."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = run(case.adapter(), stream())
        require(
            torch.equal(torch.get_rng_state(), before),
            "the global random generator advanced: draw from adapter.generator",
        )
        torch.manual_seed(2)
        require(
            same(run(case.adapter(), stream()), first),
            "two runs with one seed differ: draw from adapter.generator",
        )


# The model


@_check
def check_detach_restores_the_model(case: Case) -> None:
    """Only trained parameters change; `detach` restores flags, hooks and gradients."""
    model = case.model()
    first = next(model.parameters())
    first.requires_grad_(False)
    first.grad = torch.ones_like(first)
    next(m for m in model.modules() if not any(m.children())).eval()
    flags = [m.training for m in model.modules()]
    needs = [p.requires_grad for p in model.parameters()]
    hooks = [len(m._forward_pre_hooks) for m in model.modules()]
    before = copy.deepcopy(dict(model.state_dict()))
    with case.adapter(model) as adapter:
        run(adapter, stream())
        trained = set(adapter.trained.names)
    require([m.training for m in model.modules()] == flags, "train/eval flags changed")
    require([p.requires_grad for p in model.parameters()] == needs, "requires_grad changed")
    require([len(m._forward_pre_hooks) for m in model.modules()] == hooks, "hooks remain")
    require(torch.equal(first.grad, torch.ones_like(first)), "a gradient was overwritten")
    rest = (p for p in model.parameters() if p is not first)
    require(all(p.grad is None for p in rest), "gradients remain in parameter.grad")
    after = model.state_dict()
    require(after.keys() == before.keys(), "the keys of the model's state_dict changed")
    for name, value in before.items():
        unchanged = torch.equal(value, after[name])
        require(name in trained or unchanged, f"{name} changed and is not in adapter.trained")
    with refusal(RuntimeError, "detach", "a call after detach()"):
        adapter(stream()[0])


@_check
def check_detach_twice(case: Case) -> None:
    """`detach` returns the model; a second call leaves it alone."""
    model = case.model()
    adapter = case.adapter(model)
    require(adapter.detach() is model, "detach() does not return the model")
    model.eval()
    require(adapter.detach() is model, "a second detach() does not return the model")
    require(not model.training, "a second detach() changed the model")


@_check
def check_training_mode_is_ignored(case: Case) -> None:
    """`train()` on the adapter or the model changes nothing: the model runs in eval mode."""
    adapter = case.adapter()
    expected = run(case.adapter(), stream())
    adapter.train()
    adapter.model.train()  # dropout would show
    require(same(run(adapter, stream()), expected), "the model ran in training mode after train()")


# Reset


@_check
def check_reset(case: Case) -> None:
    """After `reset` the adapter is as new, and the same stream gives the same logits."""
    adapter = case.adapter()
    fresh, source = snapshot(adapter), copy.deepcopy(dict(adapter.model.state_dict()))
    first = run(adapter, stream())
    adapter.reset()
    require(same(dict(adapter.model.state_dict()), source), "the weights differ after a reset")
    require_unchanged(adapter, fresh, by="a run with a reset after it")
    require(
        same(run(adapter, stream()), first),
        "the logits of the same stream differ after a reset: keep what the method remembers in "
        "adapter.memory",
    )


@_check
def check_reset_allows_other_sizes(case: Case) -> None:
    """After `reset`, images may have another size."""
    adapter = case.adapter()
    run(adapter, stream())
    adapter.reset()
    run(adapter, stream(size=2 * SIZE))


# Saving and resuming


@_check
def check_resuming(case: Case) -> None:
    """A run that is saved and resumed anywhere ends bit-identical to one that was not."""
    batches = stream()
    whole = case.adapter()
    expected = run(whole, batches)
    for stop in (0, 1, 4, 7):
        stopped = case.adapter()
        run(stopped, batches[:stop])
        resumed = case.adapter(seed=99)
        resumed.load_state_dict(saved(stopped.state_dict()))
        after = f"after resuming at batch {stop}"
        require(same(run(resumed, batches[stop:]), expected[stop:]), f"the logits differ {after}")
        require(same(resumed.state_dict(), whole.state_dict()), f"the state differs {after}")
        weights = dict(resumed.model.state_dict())
        require(same(weights, dict(whole.model.state_dict())), f"the weights differ {after}")


@_check
def check_state_is_a_copy(case: Case) -> None:
    """A state does not change when the adapter continues."""
    adapter = case.adapter()
    run(adapter, stream()[:5])
    state = adapter.state_dict()
    before = copy.deepcopy(state)
    run(adapter, stream()[5:])
    require(same(state, before), "a saved state changed with the adapter: copy what it holds")


@_check
def check_state_in_a_module(case: Case) -> None:
    """A module that holds an adapter saves and resumes it."""

    def module() -> nn.ModuleDict:
        return nn.ModuleDict({"classifier": case.adapter(), "other": nn.Linear(2, 3)})

    batches = stream()
    whole = run(case.adapter(), batches)
    with torch.random.fork_rng():
        first, second = module(), module()
    classifier = first["classifier"]
    begun = [classifier(images) for images in batches[:5]]
    require(same(begun, whole[:5]), "the logits differ inside a module")
    second.load_state_dict(saved(first.state_dict()))
    require(
        same(second["other"].state_dict(), first["other"].state_dict()),
        "the rest of a module that holds an adapter is not saved",
    )
    rest = [second["classifier"](images) for images in batches[5:]]
    require(same(rest, whole[5:]), "the logits differ after resuming inside a module")


def holds_images(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() > 0 and value.shape[1:] == (3, SIZE, SIZE)
    return isinstance(value, dict) and any(map(holds_images, value.values()))


@_check
def check_state_without_buffer(case: Case) -> None:
    """`state_dict(buffer=False)` holds no images, loads, and predicts the same."""
    adapter = case.adapter()
    run(adapter, stream())
    state = adapter.state_dict(buffer=False)
    require(not holds_images(state), "state_dict(buffer=False) holds images")
    buffered = adapter.buffer is not None
    require(
        holds_images(adapter.state_dict()["memory"]) >= buffered,
        "the state holds no images though the method has a buffer",
    )
    other = case.adapter()
    other.load_state_dict(state)
    require(other.totals == adapter.totals, "a state without buffer loses the totals")
    (images, *_) = stream()
    require(
        torch.equal(other.predict(images), adapter.predict(images)),
        "predictions differ after loading a state without buffer",
    )
    run(other, stream())


def broken_states(adapter: Adapter, case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """States that do not fit, each with what the error must say."""
    good = adapter.state_dict()
    yield "method", {**good, "method": "other"}
    yield "format", {**good, "format": 0}
    yield "complete", {key: value for key, value in good.items() if key != "weights"}
    yield "complete", {**good, "totals": {"call": 1}}
    yield "complete", {}
    other = case.adapter(case.model(CLASSES + 1))
    run(other, stream())
    yield f"{CLASSES + 1} classes", other.state_dict()
    large = case.adapter()
    run(large, stream(size=2 * SIZE))
    yield rf"\(3, {2 * SIZE}, {2 * SIZE}\)", large.state_dict()
    if good["weights"]:
        name = next(iter(good["weights"]))
        short = {**good["weights"][name], "value": torch.zeros(1, 1)}
        yield re.escape(name), {**good, "weights": {**good["weights"], name: short}}
        fewer = {key: value for key, value in good["weights"].items() if key != name}
        yield re.escape(name), {**good, "weights": fewer}


@_check
def check_broken_states_are_refused(case: Case) -> None:
    """A state that does not fit raises a ValueError before anything changes."""
    adapter = case.adapter()
    run(adapter, stream())
    before = snapshot(adapter)
    for reason, state in broken_states(adapter, case):
        with refusal(ValueError, reason, "a state that does not fit"):
            adapter.load_state_dict(state)
        require_unchanged(adapter, before, by=f"a refused state ({reason})")


@_check
def check_states_of_other_classes_are_refused(case: Case) -> None:
    """A new adapter also refuses a state with another number of classes."""
    other = case.adapter(case.model(CLASSES + 1))
    run(other, stream())
    fresh = case.adapter()
    before = snapshot(fresh)
    with refusal(ValueError, "classes", "a state with another number of classes"):
        fresh.load_state_dict(other.state_dict())
    require_unchanged(fresh, before, by="a refused state")


# Bad inputs and outputs


def bad_inputs() -> dict[str, Tensor]:
    """Images to refuse, by what the error must say."""
    image = torch.zeros(3, SIZE, SIZE)
    return {
        "empty": torch.zeros(0, 3, SIZE, SIZE),
        r"\(n, channels, height, width\)": image,
        "floats": torch.zeros(2, 3, SIZE, SIZE, dtype=torch.int64),
        r"samples \[1\] .* NaN": torch.stack([image, torch.full_like(image, float("nan"))]),
        r"samples \[0, 1\] .* infinite": torch.full((2, 3, SIZE, SIZE), -float("inf")),
        rf"\(3, {2 * SIZE}, {2 * SIZE}\)": torch.zeros(2, 3, 2 * SIZE, 2 * SIZE),
    }


@_check
def check_bad_inputs_are_refused(case: Case) -> None:
    """Bad images raise a ValueError, change nothing, and do not disturb the rest of the stream."""
    adapter = case.adapter()
    batches = stream()
    expected = run(case.adapter(), batches)[6:]
    run(adapter, batches[:6])
    before = snapshot(adapter)
    for reason, images in bad_inputs().items():
        for call in (adapter, adapter.predict):
            with refusal(ValueError, reason, "a bad input"):
                call(images)
            require_unchanged(adapter, before, by=f"a refused input ({reason})")
    require(same(run(adapter, batches[6:]), expected), "refused inputs changed later logits")


class Switchable(nn.Module):
    """A classifier whose logits can be replaced by NaN or lose a class."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.mode = "good"

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        if self.mode == "nan":
            return logits * float("nan")
        return logits[:, :-1] if self.mode == "fewer" else logits


@_check
def check_other_class_counts_are_refused(case: Case) -> None:
    """A model that returns another number of classes raises a ValueError; nothing changes."""
    model = Switchable(case.model())
    adapter = case.adapter(model)
    run(adapter, stream()[:6])
    before = snapshot(adapter)
    model.mode = "fewer"
    with refusal(ValueError, f"{CLASSES - 1} classes", "another number of classes"):
        adapter(stream()[6])
    require_unchanged(adapter, before, by="a refused number of classes")


class Messages(logging.Handler):
    """Keeps what is logged to "dab" while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def __enter__(self) -> Messages:
        logging.getLogger("dab").addHandler(self)
        return self

    def __exit__(self, *exception: object) -> None:
        logging.getLogger("dab").removeHandler(self)


@_check
def check_non_finite_outputs_are_skipped(case: Case) -> None:
    """Logits that are not finite teach nothing, are counted, and are logged once."""
    model = Switchable(case.model())
    adapter, twin = case.adapter(model), case.adapter()
    batches = stream()
    expected = run(twin, batches[:6] + batches[8:])[6:]
    with Messages() as logged:
        run(adapter, batches[:6])
        model.mode = "nan"
        run(adapter, batches[6:8])
        model.mode = "good"
        skipped = adapter.totals.skipped
        outputs = run(adapter, batches[8:])
    require(skipped == 2, f"totals.skipped is {skipped} after 2 batches with NaN logits")
    warned = [text for text in logged.texts if "not finite" in text]
    require(len(warned) == 1, f"{len(warned)} warnings were logged for 2 batches with NaN logits")
    require(same(outputs, expected), "batches with NaN logits changed later logits")


# Contexts, layouts and precisions


@_check
def check_grad_modes(case: Case) -> None:
    """Inside `no_grad` and `inference_mode` all works and gives the same logits."""
    expected = run(case.adapter(), stream())
    contexts: list[Callable[[], AbstractContextManager[Any]]]
    contexts = [torch.no_grad, torch.inference_mode]
    for context in contexts:
        model, inside = case.model(), f"inside {context.__name__}"
        with context():
            adapter = case.adapter(model)
            batches = [images.clone() for images in stream()]
            outputs = run(adapter, batches)
            state = adapter.state_dict()
            adapter.reset()
            again = run(adapter, batches)
            adapter.load_state_dict(state)
            adapter(batches[0])
        require(same(outputs, expected), f"the logits differ {inside}")
        require(same(again, expected), f"the logits differ after a reset {inside}")
        adapter(stream()[0])  # and outside again


@_check
def check_memory_layouts(case: Case) -> None:
    """Channels-last and strided images give the same logits."""
    expected = run(case.adapter(), stream())
    layouts = {
        "channels-last": [x.contiguous(memory_format=torch.channels_last) for x in stream()],
        "strided": [x.repeat_interleave(2, dim=3)[..., ::2] for x in stream()],
    }
    for layout, batches in layouts.items():
        require(
            not any(images.is_contiguous() for images in batches if len(images) > 1),
            f"{layout} images are contiguous, so they check nothing",
        )
        require(same(run(case.adapter(), batches), expected), f"the logits differ: {layout} images")


@_check
def check_precisions(case: Case) -> None:
    """float16, bfloat16 and float64 models adapt, and reset bit-exactly."""
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        adapter = case.adapter(case.model().to(dtype))
        outputs = run(adapter, stream(dtype=dtype) * 2)
        require(all(z.dtype == dtype for z in outputs), f"the logits of a {dtype} model are not")
        finite = all(torch.isfinite(z).all() for z in outputs)
        require(finite, f"the logits of a {dtype} model are not finite")
        updates = adapter.totals.updates
        require((updates > 0) == trains(adapter), f"{updates} updates of a {dtype} model")
        adapter.reset()
        again = run(adapter, stream(dtype=dtype) * 2)
        require(same(again, outputs), f"the logits of a {dtype} model differ after a reset")


# Copies and memory


@_check
def check_copies_are_independent(case: Case) -> None:
    """A deepcopy adapts on its own, as the original would."""
    adapter = case.adapter()
    run(adapter, stream()[:5])
    before = snapshot(adapter)
    twin = copy.deepcopy(adapter)
    outputs = run(twin, stream()[5:])
    require_unchanged(adapter, before, by="a call of its copy")
    require(same(run(adapter, stream()[5:]), outputs), "a copy returned other logits")


@_check
def check_memory_is_bounded(case: Case) -> None:
    """The state does not grow with the stream; it may shrink when a method starts over."""

    def largest(streams: int) -> int:
        sizes = []
        for _ in range(streams):
            run(adapter, stream())
            file = io.BytesIO()
            torch.save(adapter.state_dict(), file)
            sizes.append(len(file.getvalue()))
        return max(sizes)

    adapter = case.adapter()
    short, long = largest(6), largest(7)
    require(long <= short * 1.05, f"the state grew from {short} to {long} bytes with the stream")
