"""MEMO against a step written with loops over views and classes."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.augmentations import augmix
from tests.support.nets import net, stream
from tests.support.twins import mixture, softmax

LR = 0.01


class SlowMEMO:
    """A copy of the source and a new optimizer for every image, steps, then the image itself."""

    def __init__(
        self, model: nn.Module, views: int, steps: int, momentum: float, seed: int
    ) -> None:
        self.model, self.views, self.steps, self.momentum = model, views, steps, momentum
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = 0.0

    def __call__(self, images: Tensor) -> Tensor:
        return torch.stack([self.answer(image) for image in images])

    def answer(self, image: Tensor) -> Tensor:
        own = mixture(deepcopy(self.model).eval(), 0.1)
        weights = list(own.parameters())
        velocities = [torch.zeros_like(theta) for theta in weights]
        for _ in range(self.steps):
            views = augmix(torch.stack([image] * self.views), self.generator)
            rows = [softmax(list(row)) for row in own(views)]
            mean = [sum(row[c] for row in rows) / self.views for c in range(len(rows[0]))]
            loss = -sum(p * p.log() for p in mean)
            gradients = torch.autograd.grad(loss, weights)
            for theta, g, v in zip(weights, gradients, velocities, strict=True):
                v.copy_(self.momentum * v + g)
                theta.data = theta.data - LR * (g + self.momentum * v)
        self.loss = loss.item()
        return own(image[None])[0].detach()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.0}], ids=["default", "plain"])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_every_answer_equals_the_twin(kind, steps, options):
    model = net(kind).double().eval()
    twin = SlowMEMO(deepcopy(model), 3, steps, options.get("momentum", 0.9), seed=4)
    adapter = dab.create("memo", model, augmentations=3, lr=LR, steps=steps, seed=4, **options)
    # The first image is also predicted, without a gradient, to learn the number of classes.
    for images in stream((2, 1, 3), dtype=torch.float64):
        torch.testing.assert_close(adapter(images), twin(images), rtol=0, atol=1e-9)
        assert adapter.last.loss == pytest.approx(twin.loss, rel=0, abs=1e-9)
        assert adapter.last.steps == steps * len(images)


def test_the_size_of_a_batch_does_not_matter():
    (images,) = stream((5,))
    together, apart = (dab.create("memo", net("batchnorm"), augmentations=3) for _ in range(2))
    found = torch.cat([apart(image) for image in images.split(1)])
    torch.testing.assert_close(together(images), found, rtol=0, atol=1e-6)


def test_statistics_of_single_images_are_warned_of_once(caplog):
    (images,) = stream((3,))
    adapter = dab.create("memo", net("batchnorm"), augmentations=2, statistics="batch")
    adapter(images), adapter(images)
    assert [record.message for record in caplog.records if "single image" in record.message] == [
        caplog.records[0].message
    ]


def test_without_episodes_it_keeps_what_it_learned():
    (images,) = stream((1,))
    adapter = dab.create("memo", net("layernorm"), augmentations=3, lr=LR, episodic=False)
    first, second = adapter(images), adapter(images)
    assert not torch.equal(first, second)


def test_an_output_correction_gets_the_features_of_the_whole_batch():
    (images,) = stream((6,))
    plain = dab.create("memo", net("layernorm"), augmentations=2)(images)
    corrected = dab.create("memo", net("layernorm"), augmentations=2, output="lame")(images)
    assert corrected.shape == plain.shape
    assert not torch.equal(corrected, plain)
