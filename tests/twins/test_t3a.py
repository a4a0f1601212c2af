"""T3A against a twin that keeps the supports of each class in a list."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.nets import net, stream
from tests.support.slow.lame import features_of
from tests.support.twins import CONTEXTS, argmax, entropy, logit_net, patches


def unit(row: list[float]) -> list[float]:
    length = sum(x * x for x in row) ** 0.5
    return [x / length for x in row]


class SlowT3A:
    def __init__(self, head: nn.Linear, most: int) -> None:
        self.most = most
        self.supports: list[list[tuple[float, list[float]]]] = []
        for row in head.weight.detach():
            H = entropy(head(row).detach()).item()
            self.supports.append([(H, unit(row.tolist()))])
        self.dropped = 0

    def __call__(self, features: Tensor, z: Tensor) -> Tensor:
        for row, logits in zip(features.tolist(), z, strict=True):
            self.supports[argmax(logits)].append((entropy(logits).item(), unit(row)))
        for own in self.supports:
            own.sort(key=lambda support: support[0])
            self.dropped += len(own[self.most :])
            del own[self.most :]
        prototypes = []
        for own in self.supports:
            columns = zip(*(row for _, row in own), strict=True)
            prototypes.append(unit([sum(column) for column in columns]))
        answer = [
            [sum(a * b for a, b in zip(row, p, strict=True)) for p in prototypes]
            for row in features.tolist()
        ]
        return torch.tensor(answer, dtype=z.dtype)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_answer_equals_the_twin(kind, context):
    model = net(kind).double().eval()
    twin = SlowT3A(model.head if kind == "layernorm" else model[-1], most=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with context():
        adapter = dab.create("t3a", model, supports=3)
    for images in stream((8, 5, 1, 8, 3, 8), dtype=torch.float64):
        with torch.no_grad():
            expected = twin(features_of(model, kind, images), model(images))
        with context():
            answer = adapter(images)
        torch.testing.assert_close(answer, expected, rtol=0, atol=1e-9)
        # What it has learned of these images, it also says of them again.
        torch.testing.assert_close(adapter.predict(images), expected, rtol=0, atol=1e-9)
    assert twin.dropped > 5
    assert same(dict(model.state_dict()), before)
    assert len(adapter.memory.supports.labels) == sum(map(len, twin.supports))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(2, 7),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    st.integers(1, 8),
)
def test_any_answer_equals_the_twin(seed, classes, sizes, most):
    model = logit_net(classes, seed).eval()
    twin, adapter = SlowT3A(model[-1], most), dab.create("t3a", model, supports=most)
    for images in patches(sizes, seed + 1):
        with torch.no_grad():
            expected = twin(model[:-1](images), model(images))
        torch.testing.assert_close(adapter(images), expected, rtol=0, atol=1e-9)


def test_one_forward_pass_per_call():
    model, passes = net("layernorm"), []
    model.register_forward_hook(lambda *_: passes.append(1))
    adapter = dab.create("t3a", model)
    first, *later = stream()
    adapter(first)  # which also asks for the rows of the classifier
    passes.clear()
    for count, images in enumerate(later, 1):
        adapter(images)
        assert len(passes) == count


def test_the_classifier_must_compute_the_logits():
    model = nn.Sequential(nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 6), nn.GLU(dim=1))
    adapter = dab.create("t3a", model)
    with pytest.raises(ValueError, match="needs a model whose logits are the output of a linear"):
        adapter(torch.rand(2, 3, 2, 2))
