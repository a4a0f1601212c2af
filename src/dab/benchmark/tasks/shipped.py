"""The models that come with the package, unless a recipe names another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from dab.benchmark.tasks.registry import TaskRecipe
from dab.benchmark.tasks.task import check_classes
from dab.models import zoo

__all__ = ["shipped_model"]


def shipped_model(recipe: TaskRecipe) -> tuple[Callable[[], nn.Module], Mapping[str, Any]]:
    """What makes the recipe's model, by default the one shipped for its data, and its card."""
    if recipe.model is None:
        return partial(zoo.load, recipe.name), zoo.card(recipe.name)
    from dab.models.loading import load_model

    name, card = recipe.model, load_model(recipe.model).card
    check_classes(name, card["classes"], recipe.name, zoo.classes(recipe.name))
    return lambda: load_model(name).model, card
