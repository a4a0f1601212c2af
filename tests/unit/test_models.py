from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from functools import partial
from importlib import resources

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dab.data.cache import cache_folder
from dab.data.corrupted_images import CorruptedImages
from dab.data.corruptions import CORRUPTIONS
from dab.data.datasets.cifar10 import CIFAR10
from dab.data.datasets.glyphs import CHARACTERS, Glyphs
from dab.data.images import Subset, to_tensor
from dab.models import train_gtsrb, training, zoo
from dab.models.convnet import ConvNet
from dab.models.train_cifar10 import crop_and_flip
from dab.models.training import Recipe
from dab.models.vit import Attention, ViT

tiny = partial(ViT, width=16, depth=1, heads=2, hidden=16, stem=(4, 8, 8))


# The network


@torch.no_grad()
def test_attention_is_a_weighted_mean_of_values():
    torch.manual_seed(0)
    n, length, width, heads = 2, 5, 12, 3
    attention, tokens = Attention(width, heads).double(), torch.randn(2, 5, 12).double()
    expected = torch.zeros(n, length, width).double()
    for i in range(n):
        query, key, value = attention.qkv(tokens[i]).split(width, dim=1)
        for head in range(heads):
            part = slice(head * width // heads, (head + 1) * width // heads)
            for a in range(length):
                scores = [
                    float(query[a, part] @ key[b, part]) / math.sqrt(width / heads)
                    for b in range(length)
                ]
                total = sum(math.exp(score) for score in scores)
                for b in range(length):
                    expected[i, a, part] += math.exp(scores[b]) / total * value[b, part]
    torch.testing.assert_close(attention(tokens), attention.out(expected), rtol=1e-10, atol=1e-12)


def test_normalization_is_inside_the_model():
    mean, std = [0.1, 0.5, 0.7], [0.2, 0.3, 0.6]
    torch.manual_seed(0)
    inside = tiny(classes=7, mean=mean, std=std)
    torch.manual_seed(0)
    outside = tiny(classes=7, mean=[0.0] * 3, std=[1.0] * 3)
    images = torch.rand(3, 3, 32, 32)
    normalized = torch.stack([(images[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(inside(images), outside(normalized))


@pytest.mark.parametrize("create", [tiny, partial(ConvNet, width=8)])
def test_train_and_eval_mode_compute_the_same_for_any_batch(create):
    model, images = create(classes=7), torch.rand(4, 3, 32, 32)
    together = model.train()(images)
    assert torch.equal(together, model.eval()(images))
    apart = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(apart, together)
    assert not any(isinstance(module, nn.modules.batchnorm._NormBase) for module in model.modules())


def test_the_place_of_a_token_matters():
    torch.manual_seed(0)
    model, images = tiny(classes=7), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        model.position.zero_()
        before = model(images)
        model.position[3] += torch.randn(16)
    assert not torch.allclose(model(images), before)


@torch.no_grad()
def test_a_convnet_is_its_layers_one_by_one():
    torch.manual_seed(0)
    model, images = ConvNet(classes=7, width=8).double(), torch.rand(2, 3, 32, 32)
    layers = list(model.features)
    # Convolutions, each followed by normalization in eight groups and ReLU, and the sides of the
    # squares of which the largest value is taken afterward.
    pools = {0: 2, 4: 1, 7: 2, 11: 1, 14: 4}
    for image, found in zip(images.double(), model(images.double()), strict=True):
        x = torch.stack([(band - band.mean()) / (band.std() + 0.05) for band in image])[None]
        for number, side in pools.items():
            x = layers[number](x)
            groups = x[0].reshape(8, -1)
            scaled = (groups - groups.mean(1, keepdim=True)) / (
                groups.var(1, keepdim=True, unbiased=False) + 1e-5
            ).sqrt()
            x = scaled.reshape(x.shape).clamp(min=0)
            corners = [x[:, :, i::side, j::side] for i in range(side) for j in range(side)]
            x = torch.stack(corners).amax(dim=0)
        flat = x.flatten()
        assert len(flat) == 8 * 4 * 2 * 2
        normalized = (flat - flat.mean()) / (flat.var(unbiased=False) + 1e-5).sqrt()
        torch.testing.assert_close(found, model.head(normalized), rtol=1e-9, atol=1e-9)


def test_a_convnet_does_not_see_the_mean_of_an_image():
    model, images = ConvNet(classes=7), torch.rand(4, 3, 32, 32)
    torch.testing.assert_close(model(images + 0.3), model(images), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(model(images**2), model(images), rtol=1e-3, atol=1e-4)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of heads, got 16 and 3"):
        ViT(classes=2, width=16, heads=3)


# The recipe


class RandomImages:
    """Images of noise; label 1 is brighter. Stops after so many batches, as a crash would."""

    def __init__(self, size, batches=math.inf):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 2, size)
        dark = rng.integers(0, 128, (size, 32, 32, 3), np.uint8)
        self.images = dark + np.uint8(127) * self.labels.astype(np.uint8)[:, None, None, None]
        self.batches = batches

    def __len__(self):
        return len(self.labels)

    def batch(self, indices):
        if self.batches <= 0:
            raise KeyboardInterrupt
        self.batches -= 1
        return self.images[indices]


RECIPE = Recipe(epochs=3, batch_size=4)  # of 11 images: 2 steps an epoch


def train(checkpoint, data, recipe=RECIPE):
    torch.manual_seed(0)
    model = tiny(classes=2)
    training.train(model, data, recipe, checkpoint, crop_and_flip, save_every=2)
    return model.state_dict()


@pytest.mark.parametrize("stops", [[1], [2], [3], [5], [2, 1, 3], [6]])
def test_an_interrupted_training_ends_bit_identical(tmp_path, stops):
    expected = train(tmp_path / "whole", RandomImages(11))
    for stop in stops:
        if stop < 6:
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "parts", RandomImages(11, batches=stop))
        else:
            train(tmp_path / "parts", RandomImages(11, batches=stop))
    found = train(tmp_path / "parts", RandomImages(11))
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert {file.name for file in tmp_path.iterdir()} == {"whole", "parts"}


def test_a_finished_training_is_not_repeated(tmp_path):
    finished = train(tmp_path / "checkpoint", RandomImages(11))
    found = train(tmp_path / "checkpoint", RandomImages(11, batches=0))
    assert all(torch.equal(found[name], value) for name, value in finished.items())


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    train(tmp_path / "checkpoint", RandomImages(11))
    with pytest.raises(ValueError, match="checkpoint of another training: remove it"):
        train(tmp_path / "checkpoint", RandomImages(11), replace(RECIPE, lr=1.0))


@given(steps=st.integers(2, 500), warmup=st.floats(0, 0.5))
def test_the_rate_rises_and_falls_once(steps, warmup):
    recipe = Recipe(epochs=1, lr=2.0, warmup=warmup)
    rates = [recipe.lr_at(step, steps) for step in range(steps)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(2.0)
    assert all(0 < rate <= 2.0 for rate in rates)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 4), margin=st.integers(0, 5))
def test_crop_moves_each_image_and_repeats_its_edges(seed, n, margin):
    images = np.random.default_rng(seed).integers(0, 256, (n, 9, 7, 3), np.uint8)
    moved = training.crop(images, np.random.default_rng(seed), margin)
    top, left = np.random.default_rng(seed).integers(0, 2 * margin + 1, size=(2, n, 1))
    for i in range(n):
        for row in range(9):
            for column in range(7):
                y = min(max(row + int(top[i, 0]) - margin, 0), 8)
                x = min(max(column + int(left[i, 0]) - margin, 0), 6)
                assert (moved[i, row, column] == images[i, y, x]).all()


def test_every_other_image_is_mirrored():
    images = np.zeros((400, 32, 32, 3), np.uint8)
    images[:, :, 16:] = 255
    augmented = crop_and_flip(images, np.random.default_rng(0))
    mirrored = (augmented[:, 16, 0] > 0).all(axis=1)
    assert (augmented[mirrored, 16, -1] == 0).all()
    assert (augmented[~mirrored, 16, -1] == 255).all()
    assert 150 < mirrored.sum() < 250
    assert (images[:, :, :16] == 0).all()  # the data set itself stays


def test_signs_are_moved_and_relit_and_the_data_stay():
    images = np.full((60, 32, 32, 3), 100, np.uint8)
    images[:, 12:20, 12:20] = 200
    before = images.copy()
    augmented = train_gtsrb.augment(images, np.random.default_rng(0))
    assert (augmented.dtype, augmented.shape) == (np.uint8, images.shape)
    assert np.array_equal(images, before)
    inside = augmented > augmented.mean(axis=(1, 2), keepdims=True)
    places = [np.argwhere(one[..., 0]).mean(axis=0) for one in inside]
    assert np.ptp(places, axis=0).min() > 3
    assert np.abs(np.subtract(places, 15.5)).max() < 6
    assert np.ptp(augmented[:, 0, 0, 0]) > 80
    assert np.array_equal(augmented, train_gtsrb.augment(images, np.random.default_rng(0)))


def test_light_changes_an_image_as_a_whole():
    image = np.random.default_rng(1).integers(0, 256, (8, 8, 3), np.uint8)
    rng = np.random.default_rng(2)
    gamma, exposure, contrast = np.exp(rng.uniform(-0.5, 0.5, 3))
    tint = np.exp(rng.uniform(-0.125, 0.125, 3))
    light = (image / 255) ** gamma * exposure * tint
    mean = np.mean([light[row, column] for row in (0, 4) for column in (0, 4)])
    expected = 255 * (mean + contrast * (light - mean)).clip(0, 1)
    found = train_gtsrb.relight(image, np.random.default_rng(2))
    assert np.abs(found - expected).max() < 1.01  # cut off, not rounded


def test_to_tensor_puts_colors_first():
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), np.uint8)
    tensor = to_tensor(images)
    assert tensor.shape == (2, 3, 4, 5)
    for index in np.ndindex(images.shape):
        n, row, column, color = index
        assert tensor[n, color, row, column].item() == pytest.approx(images[index] / 255, abs=1e-7)


def test_accuracy_counts_every_image_once():
    data = RandomImages(23)
    brightness = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))
    with torch.no_grad():
        brightness[1].weight[0] = 0
        brightness[1].weight[1] = 1 / 3072
        brightness[1].bias[:] = torch.tensor([0.5, 0.0])
    assert training.accuracy(brightness, data, batch_size=5) == 1
    data.labels[:4] = 1 - data.labels[:4]
    assert training.accuracy(brightness, data, batch_size=5) == 19 / 23


def test_a_run_learns_writes_its_weights_and_says_what_they_are(tmp_path, capsys):
    arguments = training.options("", tmp_path / "w.safetensors", RECIPE).parse_args(
        ["--epochs", "8"]
    )
    recipe = Recipe(epochs=1, batch_size=8, lr=1e-2)
    training.run(arguments, recipe, partial(tiny, classes=2), RandomImages(64), RandomImages(64))
    printed = capsys.readouterr().out
    checksum = hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    assert printed.count("epoch ") == 8
    assert f"test accuracy 1.0000, sha256 {checksum}" in printed


def test_publishing_rounds_the_model_to_what_is_written(tmp_path):
    from safetensors.torch import load_file

    model = tiny(classes=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    training.publish(model, tmp_path / "folder" / "w.safetensors")
    written = load_file(tmp_path / "folder" / "w.safetensors")
    assert len(list((tmp_path / "folder").iterdir())) == 1
    for name, value in model.state_dict().items():
        assert value.dtype == torch.float32
        assert written[name].dtype == torch.float16
        assert torch.equal(value, written[name].float())
        torch.testing.assert_close(value, before[name], rtol=1e-3, atol=1e-7)


# The shipped weights


def weights(name):
    return (resources.files("dab.models") / "weights" / f"{name}.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "classes"), [("glyphs", len(CHARACTERS)), ("cifar10", 10)])
def test_shipped_weights_load_in_eval_mode(name, classes):
    state = torch.get_rng_state()
    model = zoo.load(name)
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    logits = model(torch.rand(3, 3, 32, 32))
    assert logits.shape == (3, classes)
    assert logits.isfinite().all()
    assert hashlib.sha256(weights(name)).hexdigest() == zoo.MODELS[name].sha256
    assert len(weights(name)) < 4_000_000


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "other"])
def test_damaged_weights_are_refused(damage):
    content = weights("glyphs")
    damaged = {
        "flipped": content[:-1] + bytes([content[-1] ^ 1]),
        "truncated": content[:-1],
        "empty": b"",
        "other": weights("cifar10"),
    }[damage]
    with pytest.raises(ValueError, match=r"weights of 'glyphs' are damaged .*: reinstall"):
        zoo._model("glyphs", damaged)


def test_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="unknown model 'mnist'; available: cifar10, glyphs"):
        zoo.load("mnist")


def test_the_glyphs_model_reads_glyphs():
    assert training.accuracy(zoo.load("glyphs"), Glyphs.of_split("test", 1000)) >= 0.95


def test_the_cifar10_model_reads_cifar10():
    folder = cache_folder() / "cifar10"
    if not folder.exists():
        pytest.skip("CIFAR-10 is not there; `dab data get cifar10` fetches it")
    assert training.accuracy(zoo.load("cifar10"), Subset(CIFAR10(folder, "test"), 2000)) >= 0.78


@pytest.mark.slow
def test_severe_corruptions_are_hard_but_not_hopeless_for_the_glyphs_model(tmp_path):
    glyphs, model = Glyphs.of_split("test", 100), zoo.load("glyphs")
    errors = [
        1 - training.accuracy(model, CorruptedImages(glyphs, name, 5, tmp_path))
        for name in CORRUPTIONS
    ]
    assert 0.35 <= np.mean(errors) <= 0.65
    assert max(errors) < 0.99
