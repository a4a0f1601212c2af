"""Features: found in every library's models, by name, by callable; and errors that say what to do.

The models of other libraries that these and other tests ask for are made here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.models.libraries import library
from dab.parts.features import Features
from tests.support.nets import CLASSES, SIZE, conv_net, net, stream


def timm_model(name: str, **options: object) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return library("timm").create_model(name, pretrained=False, **options)


def torchvision_vit() -> nn.Module:
    """torchvision's own ViT with twelve blocks, but a narrow one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = library("torchvision").models.VisionTransformer(
            image_size=8,
            patch_size=4,
            num_layers=12,
            num_heads=2,
            hidden_dim=12,
            mlp_dim=24,
            num_classes=CLASSES,
        )
        nn.init.normal_(model.heads.head.weight)  # torchvision starts at zero
        return model


@dataclass
class ImageClassifierOutput:
    logits: Tensor


class HuggingFaceLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = nn.ModuleDict(
            {name: nn.Linear(width, width) for name in ("query", "key", "value", "output")}
        )
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)
        self.layernorm_before = nn.LayerNorm(width)
        self.layernorm_after = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layernorm_before(tokens)
        q, k, v = (self.attention[name](x) for name in ("query", "key", "value"))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        tokens = tokens + self.attention["output"](mixed)
        hidden = nn.functional.gelu(self.intermediate(self.layernorm_after(tokens)))
        return tokens + self.output(hidden)


class HuggingFaceEncoder(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(HuggingFaceLayer(width) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        for layer in self.layer:
            tokens = layer(tokens)
        return tokens


class HuggingFaceBody(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embeddings = nn.Conv2d(3, width, 4, stride=4)
        self.encoder = HuggingFaceEncoder(width, layers)
        self.layernorm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embeddings(images).flatten(2).transpose(1, 2)
        return self.layernorm(self.encoder(tokens))


class HuggingFaceViT(nn.Module):
    """The module tree of transformers' ViTForImageClassification, and its kind of output."""

    def __init__(self, width: int = 12, layers: int = 12) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.vit = HuggingFaceBody(width, layers)
            self.classifier = nn.Linear(width, CLASSES)

    def forward(self, images: Tensor) -> ImageClassifierOutput:
        return ImageClassifierOutput(self.classifier(self.vit(images)[:, 0]))


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
@pytest.mark.filterwarnings("ignore:the model has .* BatchNorm")
def test_no_features_are_looked_for_unless_they_are_needed(method):
    if method in ("lame", "adacontrast"):  # cannot do without
        with pytest.raises(ValueError, match="no linear"):
            dab.create(method, ConvClassifier())
    else:
        assert dab.create(method, ConvClassifier())(*stream((4,))).shape == (4, CLASSES)
        with pytest.raises(ValueError, match="no linear"):
            dab.create(method, ConvClassifier(), output="lame")


@pytest.mark.parametrize(
    ("features", "culprit"),
    [
        ("blocks.0.attention", "blocks.0.attention"),  # puts out a tuple
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
