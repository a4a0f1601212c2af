"""Finding the layers of a model by what they are, not by what they are called."""

from __future__ import annotations

from typing import Literal

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

__all__ = [
    "Layers",
    "Trained",
    "all_parameters",
    "batch_norms",
    "chosen_norm_parameters",
    "early_norm_parameters",
    "norm_layers",
    "norm_parameters",
    "trained_parameters",
]

Layers = Literal["all", "early"]
Trained = Literal["normalization layers", "all weights", "nothing"]

BatchNorm = nn.modules.batchnorm._BatchNorm
TORCH_NORMS = (
    BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)

WEIGHTED = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.MultiheadAttention,
    ParametrizationList,
)

SCALES = ("weight", "scale", "gamma")


def _is_norm(module: nn.Module) -> bool:
    """One of torch's normalization layers, or a custom layer whose class is named a norm.

    Libraries write their own RMSNorm, FilterResponseNorm and so on: leaves of the module tree
    with "norm" in their class name, a scale, and only per-channel vectors as parameters. A layer
    that normalizes input pixels has a mean and no scale.
    """
    if isinstance(module, TORCH_NORMS):
        return True
    own = dict(module.named_parameters(recurse=False))
    return (
        "norm" in type(module).__name__.lower()
        and not any(module.children())
        and not own.keys().isdisjoint(SCALES)
        and all(parameter.numel() == max(parameter.shape, default=1) for parameter in own.values())
    )


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The normalization layers of a model by name, in order of definition."""
    return {name: module for name, module in model.named_modules() if _is_norm(module)}


def norm_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Scale and shift of every normalization layer, by name.

    >>> list(norm_parameters(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))))
    ['1.weight', '1.bias']
    """
    found: dict[str, nn.Parameter] = {}
    for prefix, layer in norm_layers(model).items():
        for name, parameter in layer.named_parameters(recurse=False):
            # A layer used in two places is one set of parameters.
            if not any(parameter is known for known in found.values()):
                found[f"{prefix}.{name}" if prefix else name] = parameter
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no normalization layer with parameters to train "
            "(LayerNorm, GroupNorm, RMSNorm, ... with affine=True), so this method cannot adapt it"
        )
    return found


def batch_norms(model: nn.Module) -> dict[str, BatchNorm]:
    """The BatchNorm layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BatchNorm)}


def early_norm_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The norm parameters except those in the last quarter of the blocks and after the blocks.

    Blocks are children of one type in a Sequential or ModuleList, each with a norm inside: the
    transformer blocks of timm, torchvision and Hugging Face, the residual blocks of a ResNet.
    """
    blocks = _blocks(model)
    if len(blocks) < 4:
        raise ValueError(
            f"{type(model).__name__} has {len(blocks)} repeated blocks, too few to leave out the "
            "last quarter of them: use layers='all'"
        )
    last_early = blocks[len(blocks) - len(blocks) // 4 - 1]
    names = [name for name, _ in model.named_modules()]
    # The tree lists modules in order of definition, so whatever follows the last early block's
    # own modules is late: the other blocks, and the final norm after them.
    inside = [name for name in names if name == last_early or name.startswith(last_early + ".")]
    early = set(names[: names.index(inside[-1]) + 1])
    return {
        name: parameter
        for name, parameter in norm_parameters(model).items()
        if name.rpartition(".")[0] in early
    }


def chosen_norm_parameters(model: nn.Module, layers: Layers) -> dict[str, nn.Parameter]:
    """The parameters of "all" normalization layers, or only of the "early" ones."""
    return norm_parameters(model) if layers == "all" else early_norm_parameters(model)


def _blocks(model: nn.Module) -> list[str]:
    """Names of the repeated blocks of a model, outermost ones only, in order."""
    found: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Sequential | nn.ModuleList):
            continue
        children = dict(module.named_children())
        if len(children) < 2 or len({type(child) for child in children.values()}) > 1:
            continue
        prefix = f"{name}." if name else ""
        if any(prefix.startswith(f"{block}.") for block in found):
            continue
        if all(any(_is_norm(inner) for inner in child.modules()) for child in children.values()):
            found += [prefix + child for child in children]
    return found


def all_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Every weight and bias of a model, by name.

    Those are the parameters of linear, convolution, attention and normalization layers, whatever
    they are called: the fused projections of `nn.MultiheadAttention` count, as do the originals of
    parametrized weights. Parameters of a model's own, such as position embeddings, class tokens
    and layer scales, do not.

    >>> list(all_parameters(nn.MultiheadAttention(4, 2, bias=False)))
    ['in_proj_weight', 'out_proj.weight']
    """
    weighted = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, WEIGHTED) or _is_norm(module)
        for parameter in module.parameters(recurse=False)
    }
    found = {
        name: parameter
        for name, parameter in model.named_parameters()
        if id(parameter) in weighted and parameter.is_floating_point()
    }
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no linear, convolution, attention or normalization layer "
            "with parameters to train, so this method cannot adapt it"
        )
    return found


def trained_parameters(model: nn.Module, trained: Trained) -> dict[str, nn.Parameter]:
    """The parameters of a model that a method trains, by name."""
    if trained == "nothing":
        return {}
    return all_parameters(model) if trained == "all weights" else norm_parameters(model)
