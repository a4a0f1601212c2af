"""What every adapter promises, for every registered method on every kind of net."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import dab
from dab.buffers import Buffer
from tests.support.adapters import NETS, UNTRAINED, make, run
from tests.support.nets import CLASSES, SIZE, net, stream
from tests.support.same import same

pytestmark = [
    pytest.mark.filterwarnings("ignore:the model has .* BatchNorm"),
    pytest.mark.parametrize("method", dab.methods()),
    pytest.mark.parametrize("kind", NETS),
]


def snapshot(adapter):
    return copy.deepcopy(
        (
            adapter.state_dict(),
            dict(adapter.model.state_dict()),
            adapter.last,
            adapter.generator.get_state(),
        )
    )


def unchanged(adapter, before) -> bool:
    now = snapshot(adapter)
    return same(now[0], before[0]) and same(now[1], before[1]) and now[2] == before[2]


def test_logits_are_detached_and_one_row_per_sample(method, kind):
    adapter = make(method, kind)
    for images in stream((1, 3, 8, 20)):
        logits = adapter(images)
        assert logits.shape == (len(images), CLASSES)
        assert not logits.requires_grad
        assert logits.device == images.device
        assert torch.isfinite(logits).all()
        assert adapter.last.samples == len(images)


def test_it_adapts_and_counts(method, kind):
    adapter = make(method, kind)
    source = copy.deepcopy(dict(adapter.model.state_dict()))
    batches = stream()
    updates = 0
    for images in batches:
        adapter(images)
        updates += adapter.last.updated
    assert adapter.totals.calls == len(batches)
    assert adapter.totals.samples == sum(map(len, batches))
    assert adapter.totals.updates == updates
    assert adapter.totals.skipped == 0
    adapted = not same(dict(adapter.model.state_dict()), source)
    assert adapted == (updates > 0) == (method not in UNTRAINED)


def test_predict_changes_nothing(method, kind):
    adapter = make(method, kind)
    batches = stream()
    run(adapter, batches[:6])
    before = snapshot(adapter)
    first, second = adapter.predict(batches[6]), adapter.predict(batches[6])
    assert torch.equal(first, second)
    assert unchanged(adapter, before)


def test_only_trained_parameters_change_and_flags_come_back(method, kind):
    model = net(kind)
    first = next(model.parameters())
    first.requires_grad_(False)
    first.grad = torch.ones_like(first)
    next(m for m in model.modules() if not any(m.children())).eval()
    flags = [m.training for m in model.modules()]
    needs = [p.requires_grad for p in model.parameters()]
    hooks = [len(m._forward_pre_hooks) for m in model.modules()]
    before = copy.deepcopy(dict(model.state_dict()))
    with make(method, kind, model=model) as adapter:
        run(adapter, stream())
        trained = set(adapter.trained.names)
    assert [m.training for m in model.modules()] == flags
    assert [p.requires_grad for p in model.parameters()] == needs
    assert [len(m._forward_pre_hooks) for m in model.modules()] == hooks
    assert torch.equal(first.grad, torch.ones_like(first))
    assert all(p.grad is None for p in model.parameters() if p is not first)
    after = model.state_dict()
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert name in trained or torch.equal(value, after[name]), name
    with pytest.raises(RuntimeError, match="detach"):
        adapter(stream()[0])


def test_detach_can_be_called_twice_and_returns_the_model(method, kind):
    model = net(kind)
    adapter = make(method, kind, model=model)
    assert adapter.detach() is model
    model.eval()
    assert adapter.detach() is model
    assert not model.training


def test_training_mode_is_not_entered(method, kind):
    adapter, twin = make(method, kind), make(method, kind)
    expected = run(twin, stream())
    adapter.train()
    adapter.model.train()  # dropout would show
    assert same(run(adapter, stream()), expected)


def test_reset_is_bit_exact(method, kind):
    adapter = make(method, kind)
    fresh, source = snapshot(adapter), copy.deepcopy(adapter.model.state_dict())
    first = run(adapter, stream())
    adapter.reset()
    assert unchanged(adapter, fresh)
    assert same(dict(adapter.model.state_dict()), dict(source))
    assert same(run(adapter, stream()), first)


def test_after_a_reset_images_may_have_another_size(method, kind):
    adapter = make(method, kind)
    run(adapter, stream())
    adapter.reset()
    run(adapter, stream(size=2 * SIZE))


def test_one_seed_one_result_and_the_global_generator_stays(method, kind):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(make(method, kind), stream())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(run(make(method, kind), stream()), first)


@pytest.mark.parametrize("stop", [0, 1, 4, 7])
def test_resuming_is_bit_identical(method, kind, stop):
    batches = stream()
    whole = make(method, kind)
    expected = run(whole, batches)
    stopped = make(method, kind)
    run(stopped, batches[:stop])
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    resumed = make(method, kind, seed=99)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert same(run(resumed, batches[stop:]), expected[stop:])
    assert same(resumed.state_dict(), whole.state_dict())
    assert same(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))


def test_a_state_is_a_snapshot(method, kind):
    adapter = make(method, kind)
    run(adapter, stream()[:5])
    state = adapter.state_dict()
    before = copy.deepcopy(state)
    run(adapter, stream()[5:])
    assert same(state, before)


def test_a_module_that_holds_an_adapter_saves_and_resumes_it(method, kind):
    batches = stream()
    whole = run(make(method, kind), batches)
    first = nn.ModuleDict({"classifier": make(method, kind), "other": nn.Linear(2, 3)})
    assert same(run(first["classifier"], batches[:5]), whole[:5])
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = nn.ModuleDict({"classifier": make(method, kind), "other": nn.Linear(2, 3)})
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(second["other"].weight, first["other"].weight)
    assert same(run(second["classifier"], batches[5:]), whole[5:])


def test_a_state_without_buffer_is_small_and_loads(method, kind):
    adapter = make(method, kind)
    run(adapter, stream())
    state = adapter.state_dict(buffer=False)

    def holds_images(value) -> bool:
        if isinstance(value, torch.Tensor):
            return value.numel() > 0 and value.shape[1:] == (3, SIZE, SIZE)
        return isinstance(value, dict) and any(map(holds_images, value.values()))

    assert not holds_images(state["memory"])
    buffered = isinstance(getattr(adapter.memory, "buffer", None), Buffer)
    assert holds_images(adapter.state_dict()["memory"]) >= buffered
    other = make(method, kind)
    other.load_state_dict(state)
    assert other.totals == adapter.totals
    assert torch.equal(other.predict(stream()[0]), adapter.predict(stream()[0]))
    run(other, stream())


def broken_states(adapter, method, kind):
    good = adapter.state_dict()
    yield "method", {**good, "method": "other"}
    yield "format", {**good, "format": 0}
    yield "complete", {key: value for key, value in good.items() if key != "weights"}
    yield "complete", {**good, "totals": {"call": 1}}
    yield "complete", {}
    other = make(method, kind, classes=CLASSES + 1)
    run(other, stream())
    yield f"{CLASSES + 1} classes", other.state_dict()
    large = make(method, kind)
    run(large, stream(size=2 * SIZE))
    yield r"\(3, 16, 16\)", large.state_dict()
    if good["weights"]:
        name = next(iter(good["weights"]))
        short = {**good["weights"][name], "value": torch.zeros(1, 1)}
        yield name, {**good, "weights": {**good["weights"], name: short}}
        fewer = {key: value for key, value in good["weights"].items() if key != name}
        yield name, {**good, "weights": fewer}


def test_a_state_that_does_not_fit_is_refused_before_anything_changes(method, kind):
    adapter = make(method, kind)
    run(adapter, stream())
    before = snapshot(adapter)
    for reason, state in broken_states(adapter, method, kind):
        with pytest.raises(ValueError, match=reason):
            adapter.load_state_dict(state)
        assert unchanged(adapter, before), reason


def test_a_state_of_other_classes_is_refused_by_a_fresh_adapter(method, kind):
    other = make(method, kind, classes=CLASSES + 1)
    run(other, stream())
    fresh = make(method, kind)
    before = snapshot(fresh)
    with pytest.raises(ValueError, match="classes"):
        fresh.load_state_dict(other.state_dict())
    assert unchanged(fresh, before)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_inside_no_grad_and_inference_mode(method, kind, context):
    expected = run(make(method, kind), stream())
    model = net(kind)
    with context():
        adapter = make(method, kind, model=model)
        batches = [images.clone() for images in stream()]
        outputs = run(adapter, batches)
        state = adapter.state_dict()
        adapter.reset()
        again = run(adapter, batches)
        adapter.load_state_dict(state)
        adapter(batches[0])
    assert same(outputs, expected)
    assert same(again, expected)
    adapter(stream()[0])  # and outside again


def test_any_memory_layout(method, kind):
    expected = run(make(method, kind), stream())
    last = [images.contiguous(memory_format=torch.channels_last) for images in stream()]
    strided = [images.repeat_interleave(2, dim=3)[..., ::2] for images in stream()]
    assert not any(images.is_contiguous() for images in last + strided if len(images) > 1)
    assert same(run(make(method, kind), last), expected)
    assert same(run(make(method, kind), strided), expected)


def test_inputs_are_not_changed(method, kind):
    batches = stream()
    run(make(method, kind), batches)
    assert same(batches, stream())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(method, kind, dtype):
    adapter = make(method, kind, model=net(kind).to(dtype))
    outputs = run(adapter, stream(dtype=dtype) * 2)
    assert all(logits.dtype == dtype and torch.isfinite(logits).all() for logits in outputs)
    assert (adapter.totals.updates > 0) == (method not in UNTRAINED)
    adapter.reset()
    assert same(run(adapter, stream(dtype=dtype) * 2), outputs)


BAD = {
    "empty": torch.zeros(0, 3, SIZE, SIZE),
    r"\(n, channels, height, width\)": torch.zeros(3, SIZE, SIZE),
    "floats": torch.zeros(2, 3, SIZE, SIZE, dtype=torch.uint8),
    r"samples \[1\] .* NaN": torch.stack(
        [torch.zeros(3, SIZE, SIZE), torch.full((3, SIZE, SIZE), float("nan"))]
    ),
    r"samples \[0, 1\] .* infinite": torch.full((2, 3, SIZE, SIZE), -float("inf")),
    r"\(3, 16, 16\)": torch.zeros(2, 3, 2 * SIZE, 2 * SIZE),
    "float64": torch.zeros(2, 3, SIZE, SIZE, dtype=torch.float64),
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_input_is_refused_and_nothing_changes(method, kind, reason):
    adapter, twin = make(method, kind), make(method, kind)
    batches = stream()
    run(adapter, batches[:6]), run(twin, batches[:6])
    before = snapshot(adapter)
    for call in (adapter, adapter.predict):
        with pytest.raises(ValueError, match=reason):
            call(BAD[reason])
        assert unchanged(adapter, before)
    assert same(run(adapter, batches[6:]), run(twin, batches[6:]))


class Switchable(nn.Module):
    """A classifier whose logits can be spoilt or given another class count."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.mode = "good"

    def forward(self, images):
        logits = self.model(images)
        if self.mode == "nan":
            return logits * float("nan")
        return logits[:, :-1] if self.mode == "fewer" else logits


def test_another_class_count_is_refused_and_nothing_changes(method, kind):
    model = Switchable(net(kind))
    adapter = make(method, kind, model=model)
    run(adapter, stream()[:6])
    before = snapshot(adapter)
    model.mode = "fewer"
    with pytest.raises(ValueError, match=f"{CLASSES - 1} classes"):
        adapter(stream()[6])
    assert unchanged(adapter, before)


def test_non_finite_outputs_teach_nothing_and_are_counted(method, kind, caplog):
    model = Switchable(net(kind))
    adapter, twin = make(method, kind, model=model), make(method, kind)
    batches = stream()
    run(adapter, batches[:6]), run(twin, batches[:6])
    model.mode = "nan"
    run(adapter, batches[6:8])
    model.mode = "good"
    assert adapter.totals.skipped == 2
    assert len([record for record in caplog.records if "not finite" in record.message]) == 1
    assert same(run(adapter, batches[8:]), run(twin, batches[8:]))


def test_a_copy_adapts_on_its_own(method, kind):
    adapter = make(method, kind)
    run(adapter, stream()[:5])
    before = snapshot(adapter)
    twin = copy.deepcopy(adapter)
    outputs = run(twin, stream()[5:])
    assert unchanged(adapter, before)
    assert same(run(adapter, stream()[5:]), outputs)


def test_memory_is_bounded(method, kind):
    def floats(adapter) -> int:
        file = io.BytesIO()
        torch.save(adapter.state_dict(), file)
        return len(file.getvalue())

    adapter = make(method, kind)
    run(adapter, stream() * 3)
    short = floats(adapter)
    run(adapter, stream() * 10)
    assert floats(adapter) <= short * 1.05
