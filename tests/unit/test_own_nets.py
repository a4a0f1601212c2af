"""Nets of the package whose weights are in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dab.models import training
from dab.models.convnet import ConvNet
from dab.models.loading import load_model
from dab.models.resnet import ResNet


def published_name(name: str) -> str:
    first, _, rest = name.partition(".")
    if first != "stages":
        return {"stem": "conv1", "norm": "bn", "head": "fc"}[first] + "." + rest
    number, _, inner = rest.partition(".")
    return f"layer{int(number) // 4 + 1}.{int(number) % 4}.{inner.replace('norm', 'bn')}"


def test_the_net_of_gtsrb_comes_from_what_its_training_writes(tmp_path: Path):
    net = ConvNet(43).eval()
    training.publish(net, tmp_path / "net.safetensors")
    model, transform, card = load_model(f"dab/gtsrb_convnet@{tmp_path / 'net.safetensors'}")
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(images), net(images))
    assert (card["name"], card["classes"], transform.crop) == ("dab/gtsrb_convnet", 43, 32)


def test_its_weights_come_from_a_file(tmp_path: Path):
    net = ResNet(10, blocks=4).eval()
    weights = {published_name(name): value for name, value in net.state_dict().items()}
    save_file(weights, tmp_path / "net.safetensors")
    model, transform, card = load_model(f"dab/resnet26_gn@{tmp_path / 'net.safetensors'}")
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(images), net(images))
    assert (card["name"], card["classes"], transform.crop) == ("dab/resnet26_gn", 10, 32)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dab/resnet26_gn", "use a file with dab/resnet26_gn@FILE"), ("dab/resnet50", "resnet26_gn")],
)
def test_what_is_not_there_is_named(name: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        load_model(name)
