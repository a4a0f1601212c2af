"""What every adapter promises, for every registered method on every kind of net."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

import dab
from dab.testing import Case, checks
from tests.support.adapters import CASES, QUICK, REPRESENTATIVES

OPTIONS = [  # that change how a call is made
    Case("tent", {"steps": 3, "lr": 0.01}, "batchnorm"),
    Case("cotta", {**QUICK["cotta"], "steps": 2, "episodic": True}, "layernorm"),
    Case("dab", {**QUICK["dab"], "steps": 2}, "layernorm"),
]
LONG = {"check_grad_modes", "check_memory_is_bounded", "check_precisions"}
FIRST = "check_adapts_and_counts"


def promises() -> Iterator[object]:
    """`make quick` runs one check for each method, and all of them but the long ones for two.

    GroupNorm layers are adapted as LayerNorm layers are, so `make test` runs one check per method
    on them, or all for the two representatives, and `make fuzz` the others.
    """
    for check, case in product(checks(), CASES + OPTIONS):
        first = check.__name__ == FIRST
        groupnorm = case.net == "groupnorm"
        chosen = first or case.method in REPRESENTATIVES
        slow = not chosen or check.__name__ in LONG or groupnorm
        marks = [pytest.mark.slow] if slow else []
        if groupnorm and not chosen:
            marks.append(pytest.mark.exhaustive)
        yield pytest.param(
            check, case, marks=marks, id=f"{check.__name__}-{case}{' steps' * (case in OPTIONS)}"
        )


@pytest.mark.parametrize(("check", "case"), list(promises()))
def test_every_method_keeps_the_contract(check, case):
    check(case)


def test_the_named_checks_exist():
    assert {check.__name__ for check in checks()} > {FIRST, *LONG}


def test_few_methods_train_nothing():
    untrained = {case.method for case in CASES if not case.adapter().trained.names}
    assert untrained == {"source", "lame", "norm", "t3a"}
    assert {case.method for case in CASES} == set(dab.methods())
