"""What every adapter promises, for every registered method on every kind of net."""

from __future__ import annotations

import pytest

import dab
from dab.testing import checks
from tests.support.adapters import CASES


@pytest.mark.parametrize("case", CASES, ids=repr)
@pytest.mark.parametrize("check", checks())
def test_every_method_keeps_the_contract(check, case):
    check(case)


def test_two_methods_train_nothing():
    untrained = {case.method for case in CASES if not case.adapter().trained.names}
    assert untrained == {"source", "lame"}
    assert {case.method for case in CASES} == set(dab.methods())
