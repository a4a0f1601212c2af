"""Models by name: what is loaded is what was asked for, or an error says why not."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import dab
from dab.data.images import to_tensor
from dab.data.transform import Transform
from dab.models import lite0
from dab.models.checkpoints import read
from dab.models.classifier import Classifier
from dab.models.libraries import library
from dab.models.loading import load_model
from dab.models.sources import SOURCES
from dab.parts.features import Features
from dab.parts.layers import norm_layers
from tests.support.nets import net, stream

SMALL = "torchvision/shufflenet_v2_x0_5"
MEAN, STD = (0.2, 0.5, 0.7), (0.3, 0.2, 0.6)


@pytest.fixture(scope="module")
def small() -> nn.Module:
    return load_model(f"{SMALL}@random").model


def picture(height: int = 90, width: int = 130) -> Image.Image:
    down, across = np.mgrid[:height, :width]
    planes = (down * 2 % 256, across % 256, (down + across) % 256)
    return Image.fromarray(np.stack(planes, axis=2).astype(np.uint8))


# The wrapper


@torch.no_grad()
def test_a_classifier_normalizes_and_then_picks_classes():
    inner, (images,), classes = net("groupnorm").eval(), stream((4,)), (5, 0, 3)
    normalized = torch.stack([(images[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)
    expected = inner(normalized)
    torch.testing.assert_close(Classifier(inner, MEAN, STD)(images), expected)
    picked = Classifier(inner, MEAN, STD, classes)(images)
    torch.testing.assert_close(picked, torch.stack([expected[:, c] for c in classes], dim=1))


def test_constants_are_no_part_of_the_state_and_move_with_the_net():
    model = Classifier(net("groupnorm"), (0, 0, 0), STD, (1, 0))
    assert model.mean.dtype == torch.float32  # whole numbers, as some configs have them, too
    assert set(model.state_dict()) == {f"net.{name}" for name in model.net.state_dict()}
    half = model.to(torch.bfloat16)
    assert (half.mean.dtype, half.std.dtype, half.classes.dtype) == (
        *(torch.bfloat16,) * 2,
        torch.int64,
    )


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (((0.5,), STD), "three numbers"),
        ((MEAN, (0.1, 0.0, 0.1)), "std > 0"),
        ((MEAN, STD, ()), "at least two"),
        ((MEAN, STD, (3, 1, 3)), "got 3 twice"),
        ((MEAN, STD, (0, -1)), "got -1"),
    ],
)
def test_constants_and_classes_that_cannot_be_are_refused(arguments, culprit):
    with pytest.raises(ValueError, match=culprit):
        Classifier(net("groupnorm"), *arguments)


@pytest.mark.parametrize("method", dab.methods())
def test_every_method_adapts_a_classifier_as_it_does_a_net_of_those_classes(method):
    """Against a twin: a net whose last layer has these rows alone, on normalized images.

    Views of an image are taken before normalization, so the constants are those of no change.
    """
    classes = (4, 0, 5, 2)
    no_change = ((0.0,) * 3, (1.0,) * 3)
    whole, twin = net("layernorm").double(), net("layernorm").double()
    rows = torch.tensor(classes)
    twin.head = nn.Linear(twin.head.in_features, len(classes), dtype=torch.float64)
    with torch.no_grad():
        twin.head.weight.copy_(whole.head.weight[rows])
        twin.head.bias.copy_(whole.head.bias[rows])
    options = {"layers": "all"} if method == "deyo" else {}
    adapter = dab.create(method, Classifier(whole, *no_change, classes), **options)
    expected = dab.create(method, twin, **options)
    for images in stream():
        images = torch.cat([images, images.flip(3)])
        channels_last = images.to(memory_format=torch.channels_last)
        torch.testing.assert_close(
            adapter(channels_last), expected(images), rtol=1e-8, atol=1e-9, msg=method
        )
    assert adapter.classes == len(classes)


# torchvision and timm


def test_it_is_a_name_of_the_package():
    assert dab.load_model is load_model
    with pytest.raises(AttributeError, match="load_models"):
        dab.load_models  # noqa: B018


def test_a_vit_runs_end_to_end_in_109_classes():
    images = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    classes = np.random.default_rng(0).permutation(1000)[:109].tolist()
    model, transform, card = load_model("torchvision/vit_b_16@random", classes=classes)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in model.modules())
    assert transform == Transform(256, 224, "bilinear")
    assert card == {
        "name": "torchvision/vit_b_16",
        "tag": "random, seed 0",
        "note": "random weights: for timing only",
        "preprocessing": {
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "resize": 256,
            "crop": 224,
            "interpolation": "bilinear",
        },
        "classes": 109,
        "selection": card["selection"],
    }
    assert len(norm_layers(model)) == 25
    with torch.no_grad():
        logits, features = Features(model)(images, lambda: model(images))
        mean, std = (torch.tensor(card["preprocessing"][k])[:, None, None] for k in ("mean", "std"))
        expected = model.net((images - mean) / std)[:, classes]
    assert features.shape == (1, 768)
    torch.testing.assert_close(logits, expected)
    assert logits.std() > 0.01  # torchvision's own head of zeros would not decide
    for method in ("dab", "tent"):
        with dab.create(method, model) as adapter:
            assert adapter(images).shape == (1, 109)
            assert adapter.classes == 109


def test_untrained_weights_are_the_same_every_time(small):
    again = load_model(f"{SMALL}@random").model.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in small.state_dict().items())


def test_selections_of_one_size_have_cards_of_their_own():
    cards = [
        load_model("dab.models.lite0:load", classes=classes).card
        for classes in ([0, 1], [1, 0], np.array([0, 1]))
    ]
    one, other, same = cards
    assert one == same != other


@pytest.mark.parametrize(
    ("name", "resize"),
    [("resnet50:IMAGENET1K_V1", 256), ("resnet50:IMAGENET1K_V2", 232), ("resnet50", 232)],
)
def test_the_tag_decides_on_the_preprocessing(name, resize):
    transforms = library("torchvision").models.ResNet50_Weights
    preset = transforms[name.partition(":")[2] or "DEFAULT"].transforms()
    loaded = load_model(f"torchvision/{name}@random")
    assert loaded.transform == Transform(resize, 224, "bilinear")
    model = loaded.model
    with torch.no_grad():
        expected = model.net(preset(picture(300, 400))[None])
        found = model(to_tensor(loaded.transform(picture(300, 400))[None]))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["test_vit", "test_resnet.r160_in1k", "test_efficientnet_ln"])
def test_the_preprocessing_of_timm_is_its_own(name):
    timm = library("timm")
    loaded = load_model(f"timm/{name}@random")
    config = timm.data.resolve_model_data_config(timm.create_model(name))
    expected = timm.data.create_transform(**config)(picture(300, 400))[None]
    plain = to_tensor(loaded.transform(picture(300, 400))[None])
    model = loaded.model
    normalized = (plain - model.mean) / model.std
    assert normalized.shape == expected.shape
    assert (normalized - expected).abs().max() <= 2 / 255 / min(config["std"]) + 1e-5
    assert loaded.card["name"] == f"timm/{name.partition('.')[0]}"
    assert loaded.card["classes"] == 1000


def test_what_torchvision_builds_for_its_own_weights_is_built_for_a_file_too():
    state = torch.get_rng_state()
    models = library("torchvision").models
    with torch.device("meta"):
        vit = models.VisionTransformer(384, 16, 12, 12, 768, 3072)
    parts = SOURCES["torchvision"]("vit_b_16:IMAGENET1K_SWAG_E2E_V1@random")
    shapes = {name: value.shape for name, value in parts.net.state_dict().items()}
    assert shapes == {name: value.shape for name, value in vit.state_dict().items()}
    assert parts.transform == Transform(384, 384, "bicubic")
    assert SOURCES["torchvision"]("googlenet@random").net.transform_input
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("name", "culprit"),
    [
        ("vit_b_16", r"'vit_b_16' does not name a model; use one of torchvision/NET"),
        ("torchvision/vit_b16", "torchvision has no 'vit_b16'; it has .*vit_b_16"),
        ("torchvision/resnet50:IMAGENET1K_V3", "'IMAGENET1K_V3'; it has IMAGENET1K_V"),
        ("timm/vit_base_patch16_225", "timm has no .*vit_base_patch16_224"),
        ("timm/test_vit.r160_in2k@random", "timm/test_vit has no .*r160_in1k"),
        ("timm/test_vit4", r"timm has no weights of test_vit4: .*test_vit4@FILE"),
        ("timm/vit_small_patch14_dinov2@random", "no classifier"),
        ("hf/google/vit@weights.pth", "hf/FOLDER"),
        ("torchvision/resnet18@weights.npz", r"weights\.npz is not a file of weights"),
        ("json:nothing", "json has no function 'nothing'"),
        ("nowhere.at.all:load", "cannot import nowhere.at.all"),
        ("nowhere.py:load", "cannot import nowhere.py: no such file"),
        ("builtins:dict", r"builtins:dict must return a model.*\(dict\)"),
    ],
)
def test_names_that_are_none_are_refused(name, culprit):
    with pytest.raises(ValueError, match=culprit):
        load_model(name)


OFFLINE = """
import dab, sys
for name in sys.argv[1:]:
    try:
        dab.load_model(name)
    except OSError as error:
        print(type(error).__name__, error)
"""


def test_without_a_network_the_error_says_what_to_do(tmp_path):
    dead = "http://127.0.0.1:9"
    offline = {"HTTPS_PROXY": dead, "HTTP_PROXY": dead, "HF_HUB_OFFLINE": "1"}
    caches = {name: str(tmp_path) for name in ("TORCH_HOME", "HF_HOME")}
    names = ["torchvision/vit_b_16", "timm/test_vit.r160_in1k", "hf/google/vit-base-patch16-224"]
    result = subprocess.run(
        [sys.executable, "-c", OFFLINE, *names],
        env={**os.environ, **offline, **caches},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    errors = [line for line in result.stdout.splitlines() if "cannot download" in line]
    for error, name in zip(errors, names, strict=True):
        assert error.startswith(f"OSError cannot download the weights of {name} (")
    for way in ("torchvision/vit_b_16@FILE", "timm/test_vit.r160_in1k@FILE", "hf/FOLDER"):
        assert way in result.stdout


# Files of weights


def parallel(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"module.{name}": value for name, value in weights.items()}


WRAPPED = {
    "plain": lambda weights: weights,
    "ordered": OrderedDict,
    "state_dict": lambda weights: {"epoch": 3, "state_dict": parallel(weights)},
    "model": lambda weights: {"model": weights, "args": {"lr": 0.1}},
    "both": lambda weights: {"model": {"state_dict": parallel(weights)}},
    "half": lambda weights: {
        k: v.half() if v.is_floating_point() else v for k, v in weights.items()
    },
    "uncounted": lambda weights: {k: v for k, v in weights.items() if "num_batches" not in k},
}


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Weights unlike those of seed 0."""
    return {
        name: value + 0.125 if value.is_floating_point() else value
        for name, value in model.net.state_dict().items()
    }


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        *((kind, ".pth") for kind in WRAPPED),
        *((kind, ".safetensors") for kind in ("plain", "half", "uncounted")),
        ("plain", ".pt"),
        ("plain", ".bin"),
    ],
)
def test_weights_of_a_file_are_taken(tmp_path, small, kind, suffix):
    weights, file = trained(small), tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(WRAPPED[kind](weights), file)
    model, _, card = load_model(f"{SMALL}@{file}")
    assert (card["name"], card["tag"]) == (SMALL, "file")
    assert card["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert str(tmp_path) not in json.dumps(card)
    for name, value in model.net.state_dict().items():
        expected = weights[name]
        if kind == "half" and expected.is_floating_point():
            expected = expected.half().float()
        assert value.dtype == expected.dtype
        assert torch.equal(value, expected), name


@pytest.mark.parametrize("source", [SMALL, "timm/test_vit"])
def test_weights_that_do_not_fit_are_refused_in_one_go(tmp_path, source):
    file = tmp_path / "weights.pt"
    weights = dict(load_model(f"{source}@random").model.net.state_dict())
    names = [name for name in weights if weights[name].ndim > 1]
    weights["extra.weight"] = torch.zeros(3)
    weights[names[0]] = torch.zeros(1, 2)
    for name in names[1:8]:
        del weights[name]
    torch.save(weights, file)
    with pytest.raises(ValueError, match="does not fit") as error:
        load_model(f"{source}@{file}")
    message = str(error.value)
    assert f"7 missing ({', '.join(names[1:5])}, ...)" in message
    assert "1 unexpected (extra.weight)" in message
    assert f"1 with another shape ({names[0]} (1, 2) for (" in message


class Code:
    def __reduce__(self):
        return os.mkdir, (os.environ["DAB_TEST_CODE"],)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_file_is_not_run(tmp_path, monkeypatch, zipped):
    monkeypatch.setenv("DAB_TEST_CODE", str(tmp_path / "ran"))
    file = tmp_path / "weights.pth"
    if zipped:
        torch.save({"state_dict": Code()}, file)
    else:
        file.write_bytes(pickle.dumps(Code(), protocol=2))
    with pytest.raises(ValueError, match="objects that could run code"):
        load_model(f"{SMALL}@{file}")
    assert not (tmp_path / "ran").exists()
    torch.load(file, weights_only=False) if zipped else pickle.loads(file.read_bytes())
    assert (tmp_path / "ran").exists()  # it would have been


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_damaged_files_are_refused(tmp_path, suffix, damage):
    file = tmp_path / f"weights{suffix}"
    (torch.save if suffix == ".pth" else save_file)({"a": torch.zeros(500)}, file)
    file.write_bytes(file.read_bytes()[:-400] if damage is None else damage)
    with pytest.raises(ValueError, match=r"(weights\.\w+ is damaged|cannot read .*weights\.)"):
        read(file)


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        ([torch.zeros(2)], "got list"),
        ({}, "got dict"),
        ({"a": torch.zeros(2), "lr": 0.1}, "more than weights: lr"),
    ],
)
def test_files_of_other_things_are_refused(tmp_path, content, culprit):
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=culprit):
        read(tmp_path / "weights.pth")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"weights\.pth"):
        load_model(f"{SMALL}@{tmp_path / 'weights.pth'}")


# Hugging Face


def saved(folder: Path, processor: object | None = None, **changes: object) -> nn.Module:
    transformers = library("transformers")
    config = transformers.ViTConfig(
        hidden_size=12,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=24,
        image_size=32,
        patch_size=8,
        num_labels=7,
        **changes,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.ViTForImageClassification(config)
        nn.init.normal_(model.classifier.weight)
    model.save_pretrained(folder)
    processor = processor or transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    return model.eval()


@torch.no_grad()
def test_a_hugging_face_folder_is_loaded(tmp_path):
    original, classes = saved(tmp_path / "tiny"), (6, 1, 2)
    model, transform, card = load_model(f"hf/{tmp_path}/tiny", classes=classes)
    assert transform == Transform(32, 32, "bilinear")
    assert card["name"] == "hf/tiny"
    checksum = hashlib.sha256((tmp_path / "tiny" / "model.safetensors").read_bytes()).hexdigest()
    assert card["sha256"] == checksum
    assert "squeezes" in card["note"]
    processor = library("transformers").AutoImageProcessor.from_pretrained(tmp_path / "tiny")
    square = picture(80, 80)
    pixels = processor(images=square, return_tensors="pt")["pixel_values"]
    expected = original(pixels).logits[:, classes]
    found = model(to_tensor(transform(square)[None]))
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    images = torch.rand(3, 3, 32, 32)
    for method in ("dab", "lame", "roid"):
        with dab.create(method, model) as adapter:
            assert adapter(images).shape == (3, 3)


def processors() -> dict[str, tuple[object, Transform | None]]:
    transformers = library("transformers")
    crop = {"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}
    return {
        "crop": (transformers.BitImageProcessor(**crop), Transform(40, 32, "bicubic")),
        "crop_pct": (
            transformers.ConvNextImageProcessor(size={"shortest_edge": 32}, crop_pct=0.8),
            Transform(40, 32, "bicubic"),
        ),
        "bare": (
            transformers.BitImageProcessor(**crop, do_normalize=False, do_resize=False),
            Transform(None, 32, "bicubic"),
        ),
        "own ways": (transformers.LevitImageProcessor(**crop), None),
        "offset": (
            transformers.EfficientNetImageProcessor(
                size={"height": 32, "width": 32}, rescale_offset=True
            ),
            None,
        ),
        "lanczos": (transformers.BitImageProcessor(**crop, resample=1), None),
    }


@pytest.mark.parametrize("kind", ["crop", "crop_pct", "bare", "own ways", "offset", "lanczos"])
def test_a_processor_is_put_as_a_transform_or_refused(tmp_path, kind):
    processor, expected = processors()[kind]
    saved(tmp_path, processor)
    if expected is None:
        with pytest.raises(ValueError, match="more than resize, crop and normalize"):
            load_model(f"hf/{tmp_path}")
        return
    model, transform, card = load_model(f"hf/{tmp_path}")
    assert transform == expected
    assert "note" not in card
    pixels = processor(images=picture(), return_tensors="pt")["pixel_values"]
    found = (to_tensor(transform(picture())[None]) - model.mean) / model.std
    torch.testing.assert_close(found, pixels, rtol=0, atol=2.5 / 255 / 0.2)


def test_hugging_face_weights_without_a_head_are_refused(tmp_path):
    """transformers would make one up."""
    saved(tmp_path).vit.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["ViTForImageClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"2 missing \(classifier.bias, classifier.weight\)"):
        load_model(f"hf/{tmp_path}")


# Functions of one's own


OWN = """
import torch
from torch import nn
from dab.data.transform import Transform

def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.LayerNorm(3 * 4 * 4), nn.Linear(48, 6)).train()

def alone():
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), model())

def pair():
    return model(), Transform(None, 4)

def triple():
    return model(), Transform(5, 4), {"name": "mine", "version": 2}

def much():
    return model(), Transform(None, 4), {}, None

def wrong():
    return model(), "Transform"

def unfit():
    return model()
"""


def test_functions_of_ones_own_are_called(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    state = torch.get_rng_state()
    for place in ("own_models", f"{tmp_path}/own_models.py"):
        alone, transform, card = load_model(f"{place}:alone")
        assert not alone.training
        assert (transform, card["name"]) == (Transform(), f"{place}:alone")
        assert alone(torch.rand(2, 3, 224, 224)).shape == (2, 6)
        pair, transform, card = load_model(f"{place}:pair", classes=[5, 1])
        assert transform == Transform(None, 4)
        assert card["classes"] == 2
        assert "mean" not in card["preprocessing"]
        images = torch.rand(2, 3, 4, 4)
        assert torch.equal(pair(images), pair.net(images)[:, [5, 1]])
        _, transform, card = load_model(f"{place}:triple")
        assert transform == Transform(5, 4)
        assert (card["name"], card["version"], card["classes"]) == ("mine", 2, 6)
        assert card["preprocessing"]["resize"] == 5
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        ("much", r"must return .*\(Sequential, Transform, dict, NoneType\)"),
        ("wrong", r"must return .*\(Sequential, str\)"),
        ("unfit", r"own\.py:unfit cannot classify an image of 224 x 224 pixels: "),
    ],
)
def test_functions_that_return_other_things_are_refused(tmp_path, function, culprit):
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ValueError, match=culprit):
        load_model(f"{tmp_path}/own.py:{function}")


def test_classes_beyond_the_last_are_refused():
    with pytest.raises(ValueError, match="has 1000 classes, but classes includes 1000"):
        load_model(f"{SMALL}@random", classes=range(990, 1001))


# Real weights


def test_the_weights_of_lite0_are_the_published_ones():
    model, transform, card = load_model("dab.models.lite0:load")
    assert card["sha256"].startswith("57934424")  # as its file is named
    assert transform == Transform(256, 224, "bicubic")
    found = model.net.net.state_dict()
    weights = read(Path(__import__(lite0.PACKAGE).__file__).parent / "models" / lite0.FILE).weights
    assert len(found) == len(weights) == 296
    for (name, value), (theirs, expected) in zip(found.items(), weights.items(), strict=True):
        assert name.rpartition(".")[2] == theirs.rpartition(".")[2]  # weight, running_var, ...
        assert torch.equal(value, expected)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("chelsea", (281, 282, 285)),  # kinds of cats
        ("coffee", (967,)),  # espresso
        ("rocket", (657, 744)),  # missile, projectile
    ],
)
def test_lite0_sees_what_is_in_a_photograph(name, labels):
    """In those that scikit-image brings along."""
    photograph = getattr(pytest.importorskip("skimage.data"), name)()
    model, transform, _ = load_model("dab.models.lite0:load")
    probabilities = model(to_tensor(transform(photograph)[None])).softmax(dim=1)[0]
    assert int(probabilities.argmax()) in labels
    assert probabilities[list(labels)].sum() > 0.4
