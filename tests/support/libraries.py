"""Models of other libraries, as small as they get."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dab.models.libraries import library
from tests.support.nets import CLASSES


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
