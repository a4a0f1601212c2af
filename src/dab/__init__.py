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

from dab.adapter import Adapter
from dab.counters import Step, Totals
from dab.methods import DAB
from dab.registry import create, method, methods, register

__all__ = ["DAB", "Adapter", "Step", "Totals", "create", "method", "methods", "register"]

__version__ = version("dab-tta")
