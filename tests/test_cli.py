"""The command line."""

from __future__ import annotations

import inspect

import pytest

import dab
from dab.__main__ import main


def test_methods_lists_every_method_with_its_options_and_defaults(capsys):
    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    for name in dab.methods():
        cls = dab.method(name)
        assert f"{name}: " in printed
        assert cls.paper in printed
        for option in inspect.signature(cls).parameters.values():
            assert option.name == "model" or f"{option.name} = {option.default!r}" in printed


def test_methods_lists_only_those_asked_for(capsys):
    assert main(["methods", "sar"]) == 0
    printed = capsys.readouterr().out
    assert "reset_below = 0.2" in printed
    assert "eata: " not in printed


def test_an_unknown_method_is_named(capsys):
    assert main(["methods", "sra"]) == 2
    assert "unknown method 'sra'; there are: adacontrast" in capsys.readouterr().err


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "python -m dab methods dab sar" in capsys.readouterr().out


def test_the_names_are_those_of_the_tables():
    expected = "adacontrast cotta dab eata lame note roid rotta sar source tent"
    assert [name for name in dab.methods() if name in expected.split()] == expected.split()
