"""The methods, one file each. Importing one registers it."""

from dab.methods.adacontrast import AdaContrast
from dab.methods.cotta import CoTTA
from dab.methods.dab import DAB
from dab.methods.eata import EATA
from dab.methods.lame import LAME
from dab.methods.note import NOTE
from dab.methods.roid import ROID
from dab.methods.rotta import RoTTA
from dab.methods.sar import SAR
from dab.methods.source import Source
from dab.methods.tent import TENT

__all__ = [
    "DAB",
    "EATA",
    "LAME",
    "NOTE",
    "ROID",
    "SAR",
    "TENT",
    "AdaContrast",
    "CoTTA",
    "RoTTA",
    "Source",
]
