"""Output corrections, usable with any method: `dab.create("dab", model, output="markov")`."""

from dab.outputs.batch_prior import BatchPrior
from dab.outputs.causal_prior import CausalPrior
from dab.outputs.lame import Laplacian
from dab.outputs.markov import Markov
from dab.outputs.output import Output, OutputOption, create_output, outputs, register_output

__all__ = [
    "BatchPrior",
    "CausalPrior",
    "Laplacian",
    "Markov",
    "Output",
    "OutputOption",
    "create_output",
    "outputs",
    "register_output",
]
