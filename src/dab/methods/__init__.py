"""The methods, one file each. Importing one registers it."""

from dab.methods.adacontrast import AdaContrast
from dab.methods.cmf import CMF
from dab.methods.cotta import CoTTA
from dab.methods.dab import DAB
from dab.methods.deyo import DeYO
from dab.methods.eata import EATA
from dab.methods.lame import LAME
from dab.methods.memo import MEMO
from dab.methods.norm import Norm
from dab.methods.note import NOTE
from dab.methods.rdumb import RDumb
from dab.methods.roid import ROID
from dab.methods.rotta import RoTTA
from dab.methods.rpl import RPL
from dab.methods.sar import SAR
from dab.methods.sequence_dab import SequenceDAB
from dab.methods.source import Source
from dab.methods.t3a import T3A
from dab.methods.tent import TENT

__all__ = [
    "CMF",
    "DAB",
    "EATA",
    "LAME",
    "MEMO",
    "NOTE",
    "ROID",
    "RPL",
    "SAR",
    "T3A",
    "TENT",
    "AdaContrast",
    "CoTTA",
    "DeYO",
    "Norm",
    "RDumb",
    "RoTTA",
    "SequenceDAB",
    "Source",
]
