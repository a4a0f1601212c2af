"""`steps` against several calls, and `episodic` against fresh adapters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.testing import same
from tests.support.adapters import QUICK
from tests.support.nets import net, stream
from tests.support.slow.tent import SlowTENT

TRAINED = [m for m in dab.methods() if dab.method(m).trains != "nothing"]
BUFFERED = [m for m in TRAINED if dab.method(m).learns_from_buffer]
ALL = {method: {"margin": 2.0, "entropy_below": 2.0} for method in ("eata", "rdumb")}  # samples
ALL |= {"sar": {"entropy_below": 2.0}, "deyo": {"entropy_below": 2.0, "plpd_above": -1.0}}
FROM_BATCH = [m for m in TRAINED if m not in BUFFERED]


def adapter(method: str, **options: Any) -> dab.Adapter:
    given = {"lr": 0.01, "output": None, **QUICK.get(method, {}), **ALL.get(method, {}), **options}
    return dab.create(method, net("batchnorm"), **given)


def weights(of: dab.Adapter) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in of.model.state_dict().items()}


def test_three_steps_are_the_authors():
    model = net("batchnorm").double().eval()
    twin = SlowTENT(model, 0.01)
    with dab.create("tent", model, lr=0.01, steps=3) as tent:
        for images in stream((8, 5, 8), dtype=torch.float64):
            answer = tent(images)
            for _ in range(3):
                expected = twin(images)
            torch.testing.assert_close(answer, expected, rtol=0, atol=1e-9)
            assert tent.last.loss == pytest.approx(twin.loss, rel=0, abs=1e-9)


@pytest.mark.parametrize("method", FROM_BATCH)
def test_steps_on_a_batch_are_as_many_calls_with_it(method):
    several, single = adapter(method, steps=3, episodic=False), adapter(method, episodic=False)
    for images in stream((1, 1) if several.one_at_a_time else (8, 8, 8)):
        answer, steps = several(images), 0
        for _ in range(3):
            expected = single(images)
            if not single.last.updated:
                break  # another pass would learn nothing either
            steps += 1
        assert torch.equal(answer, expected)
        assert several.last.steps == steps
        assert same(weights(several), weights(single))
    assert several.totals.updates == several.totals.calls


@pytest.mark.parametrize("method", BUFFERED)
def test_steps_with_a_buffer_repeat_the_update_and_not_the_insertion(method):
    dabs = issubclass(dab.method(method), dab.DAB)
    often = {} if dabs else {"update_every": 8}
    several, single = adapter(method, steps=3, **often), adapter(method, **often)
    for images in stream((8,) * 20):
        several(images), single(images)
        assert several.last.admitted == single.last.admitted
        if several.last.updated:
            break
    assert several.last.steps == 3 * single.last.steps == 3
    with torch.no_grad():
        for _ in range(2):
            if dabs:
                single._update(single.memory, images.device)
            else:
                single.update()
    assert same(weights(several), weights(single))


@pytest.mark.parametrize("method", FROM_BATCH)
def test_every_episode_is_that_of_a_fresh_adapter(method):
    episodic = adapter(method, steps=2, episodic=True)
    for images in stream((8, 5, 8)):
        fresh = adapter(method, steps=2)
        if episodic.classes is not None:
            fresh.predict(images)
            fresh.classes, fresh.images_like = episodic.classes, episodic.images_like
            fresh.memory = fresh.begin(episodic.classes)
            fresh.generator.set_state(episodic.generator.get_state())
        assert torch.equal(episodic(images), fresh(images))
        assert same(weights(episodic), weights(fresh))


@pytest.mark.parametrize("method", BUFFERED)
def test_methods_with_a_buffer_refuse_episodes(method):
    model = net("batchnorm")
    with pytest.raises(ValueError, match="episodic=True would empty the buffer"):
        dab.create(method, model, episodic=True)
    assert all(p.requires_grad for p in model.parameters())


class Fragile(nn.Module):
    """Returns no number once its norm has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(192), nn.Linear(192, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.head(self.norm(images.flatten(1)))
        return logits / (self.norm.weight == 1).all()


def test_a_pass_that_fails_after_a_step_returns_to_the_source():
    torch.manual_seed(0)
    model = Fragile().eval()
    (images,) = stream((8,))
    expected = model(images).detach()
    tent = dab.create("tent", model, steps=3)
    torch.testing.assert_close(tent(images), expected)
    assert tent.last.restored
    assert tent.last.skipped
    assert bool((model.norm.weight == 1).all())
