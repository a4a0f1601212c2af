"""Online test-time adaptation: a trained image classifier that adapts while it predicts.

>>> import dab, torch
>>> model = torch.nn.Sequential(
...     torch.nn.Flatten(), torch.nn.LayerNorm(48), torch.nn.Linear(48, 10)
... )
>>> adapter = dab.DAB(model, capacity=64)
>>> adapter(torch.rand(8, 3, 4, 4)).shape
torch.Size([8, 10])
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dab.adapter import Adapter
from dab.fleet import Fleet
from dab.methods import DAB
from dab.parts.step import Step, Totals
from dab.registry import create, method, methods, register

if TYPE_CHECKING:
    from dab.models.loading import load_model

__all__ = [
    "DAB",
    "Adapter",
    "Fleet",
    "Step",
    "Totals",
    "create",
    "load_model",
    "method",
    "methods",
    "register",
]

__version__ = version("dab-tta")


def __getattr__(name: str) -> Any:
    if name == "load_model":  # with the models, when it is asked for
        from dab.models.loading import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
