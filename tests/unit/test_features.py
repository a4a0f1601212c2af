"""Features: found in the models of every library, by name, by callable; errors name the remedy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.parts.features import Features
from tests.support.interrupts import Interrupt, moments
from tests.support.libraries import HuggingFaceViT, timm_model, torchvision_vit
from tests.support.nets import CLASSES, SIZE, conv_net, net, stream


@torch.no_grad()
def found(model: nn.Module, images: Tensor, source=None) -> Tensor:
    """The features that are tapped, with the output passed through as it is."""
    model.eval()
    hooks = [len(layer._forward_hooks) for layer in model.modules()]
    expected = model(images)
    output, features = Features(model, source)(images, lambda: model(images))
    if not isinstance(expected, Tensor):
        expected, output = expected.logits, output.logits
    assert torch.equal(output, expected)
    assert [len(layer._forward_hooks) for layer in model.modules()] == hooks
    return features


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_found_in_timm(name):
    options = {"img_size": 32} if name.startswith("vit") else {}
    model = timm_model(name, num_classes=CLASSES, **options)
    images = torch.rand(3, 3, 32, 32)
    features = found(model, images)
    with torch.no_grad():
        expected = model.forward_head(model.forward_features(images), pre_logits=True)
    assert features.shape == (3, model.num_features)
    torch.testing.assert_close(features, expected, rtol=0, atol=0)


def test_found_in_torchvision():
    model = torchvision_vit()
    (images,) = stream((3,))
    seen = []
    model.encoder.register_forward_hook(lambda _, __, tokens: seen.append(tokens[:, 0]))
    features = found(model, images)
    assert torch.equal(features, seen[-1])


def test_found_in_hugging_face():
    model = HuggingFaceViT()
    (images,) = stream((3,))
    features = found(model, images)
    with torch.no_grad():
        assert torch.equal(features, model.vit(images)[:, 0])


@pytest.mark.parametrize("kind", ["groupnorm", "batchnorm"])
def test_found_in_a_sequential(kind):
    model = net(kind)
    (images,) = stream((3,))
    features = found(model, images)
    with torch.no_grad():
        assert torch.equal(features, model[:-1](images))


@torch.no_grad()
def test_the_rows_of_the_classifier_are_found_behind_other_linear_layers():
    head = nn.Linear(8, CLASSES)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE**2, 8), nn.ReLU(), head)
    (images,) = stream((3,))
    kept = [4, 0, 2]
    features = Features(model)
    features(images, lambda: model(images))
    rows = features.rows(images, lambda: model(images)[:, kept])
    assert rows is not None
    assert rows.tolist() == kept
    assert features.classifier is head


def test_linear_layers_over_tokens_are_passed_by():
    """Also for a single image, and though the blocks' linear layers run first."""
    model = net("layernorm")
    for images in stream((3, 1)):
        features = found(model, images)
        with torch.no_grad():
            tokens = model.patches(images).flatten(2).transpose(1, 2)
            assert torch.equal(features, model.norm(model.blocks(tokens)).mean(dim=1))


class Reversed(nn.Module):
    """The classifier is defined first, and a linear layer over tokens runs last."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(12, CLASSES)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 12))
        self.tokens = nn.Linear(1, 1)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.classifier(self.body(images))
        return self.tokens(logits[..., None]).squeeze(-1)


def test_the_order_is_that_of_the_forward_pass():
    model = Reversed()
    (images,) = stream((3,))
    with torch.no_grad():
        assert torch.equal(found(model, images), model.body(images))


def test_a_named_layer_gives_its_output_flattened():
    model = net("groupnorm")
    (images,) = stream((3,))
    with torch.no_grad():
        assert torch.equal(found(model, images, "6"), model[:7](images).flatten(1))
        assert torch.equal(found(model, images, "3"), model[:4](images).flatten(1))


def test_a_callable_is_asked_itself():
    model = conv_net(None, CLASSES)
    (images,) = stream((3,))
    assert torch.equal(found(model, images, lambda x: x * 2), images.flatten(1) * 2)


class ConvClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, 3)
        self.classifier = nn.Conv2d(3, CLASSES, SIZE)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.norm(images)).flatten(1)


class TokenVotes(nn.Module):
    """A linear layer that runs on tokens, and none that runs on images."""

    def __init__(self) -> None:
        super().__init__()
        self.vote = nn.Linear(3, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.vote(images.flatten(2).transpose(1, 2)).mean(dim=1)


def test_a_model_without_linear_layers_is_refused_untouched():
    model = ConvClassifier()
    with pytest.raises(ValueError, match=r"ConvClassifier has no linear.*features=\.\.\."):
        dab.create("lame", model)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    named = dab.create("lame", model, features="norm")
    assert named(*stream((4,))).shape == (4, CLASSES)


def test_a_name_that_is_no_layer_is_refused_untouched():
    model = net("groupnorm")
    with pytest.raises(ValueError, match=r"'norm_pre' is not a layer.*'8'"):
        dab.create("lame", model, features="norm_pre")
    assert model.training


def test_linear_layers_over_tokens_only_are_no_features():
    adapter = dab.create("lame", TokenVotes())
    with pytest.raises(ValueError, match="one row of features per image"):
        adapter(*stream((4,)))
    assert not any(layer._forward_hooks for layer in adapter.model.modules())
    assert adapter.totals.calls == 0


def test_a_layer_that_mixes_images_is_refused():
    class Windows(nn.Module):
        """Four windows of each image, classified apart."""

        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(3 * SIZE * SIZE // 4, 5)
            self.mean = nn.Linear(5, CLASSES)

        def forward(self, images: Tensor) -> Tensor:
            windows = images.reshape(4 * len(images), -1)
            return self.mean(self.body(windows)).view(len(images), 4, -1).mean(dim=1)

    with pytest.raises(ValueError, match="one row of features per image"):
        dab.create("lame", Windows())(*stream((3,)))
    with pytest.raises(ValueError, match="one row of features per image"):
        dab.create("lame", Windows(), features="body")(*stream((3,)))


@pytest.mark.parametrize("method", dab.methods())
def test_no_features_are_looked_for_unless_they_are_needed(method):
    if method in ("lame", "adacontrast", "t3a"):  # cannot do without
        with pytest.raises(ValueError, match="no linear"):
            dab.create(method, ConvClassifier())
    else:
        options = {"layers": "all"} if method == "deyo" else {}
        adapter = dab.create(method, ConvClassifier(), **options)
        assert adapter(*stream((4,))).shape == (4, CLASSES)
        with pytest.raises(ValueError, match="no linear"):
            dab.create(method, ConvClassifier(), output="lame", **options)


@pytest.mark.parametrize(
    ("features", "culprit"),
    [
        ("blocks.0.attention", "blocks.0.attention"),  # returns a tuple
        (lambda images: images[:2], "features"),
        (lambda images: images.sum(dim=(1, 2, 3)), "features"),
        (lambda images: None, "features"),
    ],
    ids=["a tuple", "fewer rows", "no rows", "nothing"],
)
def test_features_that_are_no_rows_are_refused_and_nothing_changes(features, culprit):
    adapter = dab.create("lame", net("layernorm"), features=features)
    with pytest.raises(ValueError, match=culprit):
        adapter(*stream((4,)))
    assert adapter.totals.calls == 0
    assert not any(layer._forward_hooks for layer in adapter.model.modules())


def of_class(model: nn.Module) -> nn.Module:
    """With a forward that is compiled in the class."""
    kind = type(model)
    forward = torch.compile(kind.forward, backend="eager")
    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return model


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def by_method(model: nn.Module) -> nn.Module:
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def wrapped(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


COMPILED = [wrapped, in_place, by_method, of_class]


@pytest.mark.parametrize("compiled", COMPILED)
@torch.no_grad()
def test_found_in_a_compiled_model_that_has_run_before(compiled):
    images = stream()[0]
    expected = found(net("layernorm"), images)
    model = compiled(net("layernorm").eval())
    model(images)
    _, features = Features(model)(images, lambda: model(images))
    assert torch.equal(features, expected)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_compiled_model_stays_compiled_after_an_interrupt(compiled):
    model = compiled(net("layernorm").eval())
    before = [dict(vars(layer)) for layer in model.modules()]
    adapter = dab.create("source", model, output="lame", features=None)
    images = stream()[0]
    interrupts = 0
    for moment in moments(lambda: adapter(images)):
        try:
            with Interrupt(moment):
                adapter(images)
        except KeyboardInterrupt:
            interrupts += 1
        for layer, attributes in zip(model.modules(), before, strict=True):
            for name in ("forward", "_compiled_call_impl"):
                assert vars(layer).get(name) is attributes.get(name)
    assert interrupts > 50
