"""Output corrections, usable with any method: `dab.create("dab", model, output="causal_prior")`."""

from dab.outputs.batch_prior import BatchPrior
from dab.outputs.causal_prior import CausalPrior
from dab.outputs.lame import Laplacian
from dab.outputs.output import Output, OutputOption, create_output, outputs, register_output

__all__ = [
    "BatchPrior",
    "CausalPrior",
    "Laplacian",
    "Output",
    "OutputOption",
    "create_output",
    "outputs",
    "register_output",
]
