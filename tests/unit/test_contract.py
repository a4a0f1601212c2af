"""What every adapter promises, for every registered method on every kind of net."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

import dab
from dab.testing import checks
from tests.support.adapters import CASES

LONG = {"check_grad_modes", "check_memory_is_bounded", "check_precisions"}


def promises() -> Iterator[object]:
    for check, case in product(checks(), CASES):
        slow = check.__name__ in LONG or case.net == "groupnorm"  # it adapts as layernorm does
        marks = [pytest.mark.slow] if slow else []
        yield pytest.param(check, case, marks=marks, id=f"{check.__name__}-{case}")


@pytest.mark.parametrize(("check", "case"), list(promises()))
def test_every_method_keeps_the_contract(check, case):
    check(case)


def test_the_long_checks_exist():
    assert {check.__name__ for check in checks()} > LONG


def test_few_methods_train_nothing():
    untrained = {case.method for case in CASES if not case.adapter().trained.names}
    assert untrained == {"source", "lame", "norm", "t3a"}
    assert {case.method for case in CASES} == set(dab.methods())
