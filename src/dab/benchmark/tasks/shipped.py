"""The model of a task: one that is shipped with the package, or one that the recipe names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

from dab.benchmark.tasks.registry import TaskRecipe
from dab.benchmark.tasks.task import check_classes
from dab.models import zoo

__all__ = ["named_model", "published_column", "shipped_model"]

Model = tuple[Callable[[], nn.Module], Mapping[str, Any]]


def shipped_model(recipe: TaskRecipe, shipped: str | None = None) -> Model:
    """Returns what makes the recipe's model, by default a shipped one, and the model's card.

    Args:
        recipe: of the task.
        shipped: the name of the shipped model; None if it is that of the data.
    """
    shipped = shipped or recipe.name
    if recipe.model is None:
        return partial(zoo.load, shipped), zoo.card(shipped)
    return named_model(recipe, zoo.classes(shipped))


def named_model(recipe: TaskRecipe, classes: int) -> Model:
    """Returns what makes the model that a recipe names, and the model's card."""
    from dab.models.loading import load_model

    name = recipe.model
    if name is None:
        raise ValueError(f"{recipe.name} has no default model: name one with --model")
    card = load_model(name).card
    check_classes(name, card["classes"], recipe.name, classes)
    return lambda: load_model(name).model, card


def published_column(recipe: TaskRecipe, card: Mapping[str, Any]) -> str | None:
    """Returns the column of the published tables for all images of CIFAR-10 and this model."""
    is_published = card["name"] == "dab/resnet26_gn" and recipe.samples is None
    return "cifar10_c" if is_published else None
