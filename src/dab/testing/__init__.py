"""Checks of the contract that every method keeps, for your own method too.

`check_method` runs them all; `checks` lists them, to run each as a test of its own:

    import dab.testing, pytest

    @pytest.mark.parametrize("net", dab.testing.NETS)
    @pytest.mark.parametrize("check", dab.testing.checks())
    def test_mine_keeps_the_contract(check, net):
        check(dab.testing.Case("mine", {"capacity": 8}, net))
"""

from dab.testing.case import Case, run
from dab.testing.contract import check_method, checks
from dab.testing.equality import same
from dab.testing.nets import CLASSES, NETS, SIZE, net, stream
from dab.testing.passes import PassCounter

__all__ = [
    "CLASSES",
    "NETS",
    "SIZE",
    "Case",
    "PassCounter",
    "check_method",
    "checks",
    "net",
    "run",
    "same",
    "stream",
]
