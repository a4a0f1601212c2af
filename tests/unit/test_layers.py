"""Which parameters count as weights and biases: by what they belong to, not by their names."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import dab
from dab.parts.layers import all_parameters
from tests.support.libraries import timm_model, torchvision_vit
from tests.support.nets import OwnNorms, net


class Scaled(nn.Module):
    """A net with a parameter of its own that is called like a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12))
        self.head = nn.Linear(12, 6)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(images.flatten(1) * self.weight)


def left_out(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()} - all_parameters(model).keys()


@pytest.mark.parametrize("kind", ["layernorm", "groupnorm", "batchnorm"])
def test_nets_of_plain_layers_have_nothing_else(kind):
    model = net(kind)
    assert list(all_parameters(model)) == [name for name, _ in model.named_parameters()]


def test_norms_of_somebodys_own_count():
    assert left_out(OwnNorms()) == set()


def test_parameters_of_the_model_itself_do_not_count():
    assert left_out(Scaled()) == {"weight"}


def test_parametrized_weights_count():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 2))
    assert left_out(model) == set()


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(ValueError, match="has no linear, convolution, attention or normalization"):
        all_parameters(nn.Sequential(nn.PReLU()))


def test_torchvision_projects_with_a_fused_weight():
    model = torchvision_vit()
    assert left_out(model) == {"class_token", "encoder.pos_embedding"}
    assert "encoder.layers.encoder_layer_0.self_attention.in_proj_weight" in all_parameters(model)


def test_tokens_positions_and_layer_scales_do_not_count():
    model = timm_model("vit_tiny_patch16_224", depth=2, init_values=1e-5)
    names = {f"blocks.{block}.ls{half}.gamma" for block in range(2) for half in (1, 2)}
    assert left_out(model) == {"cls_token", "pos_embed", *names}


@pytest.mark.parametrize("method", ["cotta", "memo", "adacontrast"])
def test_methods_that_train_all_weights_leave_the_rest_alone(method):
    model = Scaled()
    adapter = dab.create(method, model)
    for images in torch.rand(3, 4, 3, 2, 2):
        adapter(images)
    assert adapter.totals.updates == 3
    assert torch.equal(model.weight, torch.ones(12))
