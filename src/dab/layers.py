"""Finding the normalisation layers of a model by what they are, not by what they are called."""

from __future__ import annotations

from torch import nn

__all__ = ["batch_norms", "norm_layers", "norm_parameters"]

BatchNorm = nn.modules.batchnorm._BatchNorm
TORCH_NORMS = (
    BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def _is_norm(module: nn.Module) -> bool:
    """One of torch's normalisation layers, or a layer of its own kind that says it is a norm.

    Libraries write their own RMSNorm, FilterResponseNorm and the like: leaves of the module
    tree whose class is called a norm and whose parameters are all per-channel vectors.
    """
    if isinstance(module, TORCH_NORMS):
        return True
    return (
        "norm" in type(module).__name__.lower()
        and not any(module.children())
        and all(parameter.ndim == 1 for parameter in module.parameters(recurse=False))
    )


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The normalisation layers of a model by name, in forward order as far as the tree knows it."""
    return {name: module for name, module in model.named_modules() if _is_norm(module)}


def norm_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Scale and shift of every normalisation layer, by name.

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
            f"{type(model).__name__} has no normalisation layer with parameters to train "
            "(LayerNorm, GroupNorm, RMSNorm, ... with affine=True), so this method cannot adapt it"
        )
    return found


def batch_norms(model: nn.Module) -> dict[str, nn.Module]:
    """The BatchNorm layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, BatchNorm)}
