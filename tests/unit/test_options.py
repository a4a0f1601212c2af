"""Every option of every method and output refuses nonsense, before the model is touched."""

from __future__ import annotations

import copy
import inspect
import math
import typing
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typing_extensions import Unpack

import dab
from dab.common import DEFAULTS, Training
from dab.outputs import outputs
from dab.outputs.output import OUTPUTS
from dab.parts.options import Option, check_options, options_of
from dab.testing import same
from tests.support.nets import net

NUMBERS = [math.nan, math.inf, -math.inf, -1, -0.5, "x", "", None, [], {}, True, 1j, torch.ones(1)]
NONSENSE: dict[str, list[Any]] = {
    "lr": [*NUMBERS, 0],
    "momentum": [*NUMBERS, 1, 2],
    "weight_decay": NUMBERS,
    "temperature": [*NUMBERS, 0],
    "tolerance": NUMBERS,
    "fisher_weight": NUMBERS,
    "margin": NUMBERS,
    "rho": NUMBERS,
    "spread": NUMBERS,
    "trust": [*NUMBERS, 0],
    "budget": [*NUMBERS, 0, 1.01, 1e300],
    "entropy_below": NUMBERS,
    "entropy_weight": NUMBERS,
    "noise": [*NUMBERS, 0],
    "q": [*NUMBERS, 0, 1.01],
    "plpd_above": [value for value in NUMBERS if value not in (-1, -0.5)],
    "reset_below": NUMBERS,
    "k": NUMBERS,
    "floor": [*NUMBERS, 0],
    "trust_from": [*NUMBERS, 0.2],
    "trust_fully": [*NUMBERS, 0, 0.01],
    "episodic": [1, 0, "x", None, [], 0.5],
    "crop": [1, 0, "x", None, [], 0.5],
    "symmetric": [1, 0, "x", None, [], 0.5],
    "seed": [math.nan, -1, 2**64, 1.0, "x", None, [], True],
    "admission": ["x", "", 1, math.nan, [], True],
    "trigger": ["x", "", None, 1, math.nan, [], True],
    "filling": ["x", "", None, 1, math.nan, [], True],
    "labels": ["x", "", None, 1, math.nan, [], True],
    "storage": ["x", "", None, 1, math.nan, [], True],
    "mode": ["x", "", None, 1, math.nan, [], True],
    "affinity": ["x", "", None, 1, math.nan, [], True],
    "statistics": ["x", "", None, 1, math.nan, [], True],
    "optimizer": ["x", "", None, 1, math.nan, [], True],
    "layers": ["x", "", None, 1, math.nan, [], True],
    "device": ["x", math.nan, [], True, 1.5],
    "output": ["x", "", 1, math.nan, [], True],
    "features": ["x", 1, math.nan, [], True],
    "source_images": ["x", 1, math.nan, True],
    "guard": ["x", "", None, 1, math.nan, []],
}
for share in (
    "teacher",
    "ensemble",
    "gate",
    "restore",
    "alpha",
    "bn_momentum",
    "gamma",
    "least_kept",
):
    NONSENSE[share] = [*NUMBERS, 1.01, 1e300]
for decay in ("decay", "long_decay", "patience"):
    NONSENSE[decay] = [*NUMBERS, 0, 1, 1e300]
WHOLE = [*NUMBERS, 0, 1.0, 8.5, 10**30, "8"]
for count in ("capacity", "batch_size", "update_every", "queue", "neighbors", "augmentations"):
    NONSENSE[count] = WHOLE
for count in ("fisher_images", "steps", "rounds", "reset_every", "patches", "supports"):
    NONSENSE[count] = WHOLE
NONSENSE["refine_after"] = [value for value in WHOLE if value is True or value != 0]

NEEDED = {"deyo": {"layers": "all"}}  # to adapt a net of few blocks

CLASSES = {name: dab.method(name) for name in dab.methods()} | {
    f"output {name}": OUTPUTS[name] for name in outputs()
}
CASES = [(owner, option.name) for owner, cls in CLASSES.items() for option in options_of(cls)]


def build(owner: str, model: nn.Module, options: dict[str, Any]) -> Any:
    cls = CLASSES[owner]
    return cls(**options) if owner.startswith("output ") else cls(model, **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("owner", "name"), CASES)
def test_nonsense_is_refused_by_name_and_the_model_stays_as_it_was(owner, name):
    model = net("layernorm")
    before = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    for value in NONSENSE[name]:
        with pytest.raises((TypeError, ValueError), match=name):
            build(owner, model, {**NEEDED.get(owner, {}), name: value})
    assert same(dict(model.state_dict()), dict(before[0]))
    assert [m.training for m in model.modules()] == before[1]
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(("owner", "name"), CASES)
def test_an_option_says_what_it_takes(owner, name):
    (option,) = (option for option in options_of(CLASSES[owner]) if option.name == name)
    assert option.words not in ("", "anything")
    if not option.required:
        assert option.check(option.default) == option.default


def test_options_are_checked_without_a_model():
    assert check_options(dab.DAB, {"capacity": np.int64(8), "lr": 1}) == {"capacity": 8, "lr": 1.0}
    with pytest.raises(ValueError, match="capacity must be an integer between 1 and"):
        check_options(dab.DAB, {"capacity": 0})
    with pytest.raises(TypeError, match="did you mean 'batch_size'"):
        check_options(dab.DAB, {"batchsize": 0})
    with pytest.raises(ValueError, match=r"unknown output 'prior'; did you mean 'batch_prior'"):
        check_options(dab.DAB, {"output": "prior"})


def test_methods_from_elsewhere_have_their_types_checked():
    class Own(dab.Adapter):
        name = "own"

        def __init__(
            self,
            model,
            strength: float = 0.5,
            rounds: int = 2,
            fast: bool = False,
            mode: str = "a",
            extra: Unknown = None,  # noqa: F821
        ) -> None:
            super().__init__(model)
            self.strength = strength

        def trainable(self, model):
            return {}

        def adapt(self, images, logits):
            return logits

    wrong = [("strength", "x"), ("strength", math.nan), ("rounds", 1.5), ("fast", 1), ("mode", 3)]
    for name, value in wrong:
        with pytest.raises((TypeError, ValueError), match=name):
            Own(net("layernorm"), **{name: value})
    adapter = Own(net("layernorm"), strength=1, extra=object())
    assert adapter.options == {"strength": 1.0, "rounds": 2, "fast": False, "mode": "a"}


def test_help_shows_the_common_options_with_the_defaults_of_the_method():
    shown = inspect.signature(dab.method("rotta")).parameters
    assert list(shown)[:2] == ["model", "capacity"]
    assert list(shown)[-11:] == list(DEFAULTS)
    assert all(option.kind is option.KEYWORD_ONLY for option in list(shown.values())[-11:])
    assert (shown["lr"].annotation, shown["lr"].default) == ("Rate", 1e-3)
    assert str(shown["statistics"]).endswith("Literal['robust']] = 'robust'")
    assert [*inspect.signature(dab.method("source")).parameters][1:] == list(DEFAULTS)[7:]
    assert "output" not in inspect.signature(dab.method("lame")).parameters


def test_published_values_are_inherited_and_given_ones_come_first():
    class Slower(dab.method("rotta")):
        published = Training(lr=1e-5)

    class Faster(Slower):
        def __init__(self, model, **common: Unpack[Training[typing.Any]]) -> None:
            super().__init__(model, **{**common, "lr": 2 * common["lr"]})

    adapter = Slower(net("layernorm"), momentum=0.5)
    chosen = {"optimizer": "adam", "lr": 1e-5, "momentum": 0.5, "statistics": "robust"}
    assert adapter.options.items() >= chosen.items()
    (group,) = adapter.trained.optimizer.param_groups
    assert (type(adapter.trained.optimizer), group["lr"]) == (torch.optim.Adam, 1e-5)
    assert group["betas"] == (0.5, 0.999)
    (group,) = Faster(net("layernorm")).trained.optimizer.param_groups
    assert group["lr"] == 2e-5
    with pytest.raises(ValueError, match="lr must be a number greater than 0"):
        Slower(net("layernorm"), lr=-1)


@pytest.mark.parametrize("annotation", [inspect.Parameter.empty, "Any", "Unpack[Missing]"])
def test_options_that_nobody_declares_are_refused_when_the_class_is_defined(annotation):
    def init(self, model, **others):
        raise NotImplementedError

    init.__annotations__ = {} if annotation is inspect.Parameter.empty else {"others": annotation}
    with pytest.raises(TypeError, match=r"Mine: .*\*\*others .* annotate it as Unpack\[Training\]"):
        type("Mine", (dab.Adapter,), {"__init__": init})


def test_an_option_without_an_annotation_takes_anything():
    assert Option("x", typing.Any).check([1]) == [1]


def test_a_similar_output_is_suggested():
    with pytest.raises(ValueError, match=r"unknown output 'causal_prio'; did you mean 'causal_p"):
        dab.create("tent", net("layernorm"), output="causal_prio")


@pytest.mark.parametrize("device", ["meta", "cuda:99", "xpu:99"])
def test_a_device_that_is_not_available_is_refused_at_once(device):
    with pytest.raises(ValueError, match=r"device must be .*available"):
        dab.DAB(net("layernorm"), device=device)
