"""When a buffer has changed enough for an update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from dab.parts.schema import Integer, List, take
from dab.parts.transaction import Recorded

__all__ = ["Trigger", "TriggerKind"]

TriggerKind = Literal["outgoing", "incoming", "any"]


class Trigger(Recorded):
    """Due once N/4 distinct classes have been replaced in the buffer since the last update.

    Args:
        kind: which classes count: those of the evicted samples ("outgoing", the paper's wording
            taken literally) or of the new ones ("incoming"); "any" counts all replacements.
        batch_size: the N of N/4.
        classes: with few classes, N/4 distinct ones can never be reached, and requiring all of
            them starves the method, so at most half of them are required. A departure from the
            paper that affects only C < N/2; the paper has C >= 109.

    >>> trigger = Trigger("outgoing", batch_size=8, classes=100)
    >>> trigger.count(incoming=3, outgoing=7); trigger.count(incoming=4, outgoing=7); trigger.due
    False
    >>> trigger.count(incoming=5, outgoing=3); trigger.due
    True
    """

    def __init__(self, kind: TriggerKind, batch_size: int, classes: int) -> None:
        if kind not in get_args(TriggerKind):
            raise ValueError(f"trigger must be one of {get_args(TriggerKind)}, got {kind!r}")
        self.kind, self.classes = kind, classes
        quarter = batch_size // 4
        self.threshold = max(1, quarter if kind == "any" else min(quarter, classes // 2))
        self._classes: frozenset[int] = frozenset()  # replaced since the last update
        self._replacements = 0

    @property
    def counted(self) -> int:
        """What has been replaced since the last update, in classes (or, for "any", in images)."""
        return self._replacements if self.kind == "any" else len(self._classes)

    @property
    def due(self) -> bool:
        return self.counted >= self.threshold

    def count(self, incoming: int, outgoing: int) -> None:
        """A sample of class `incoming` has taken the place of one of class `outgoing`."""
        self._classes |= {incoming if self.kind == "incoming" else outgoing}
        self._replacements += 1

    def clear(self) -> None:
        self._classes, self._replacements = frozenset(), 0

    def state_dict(self) -> dict[str, Any]:
        return {"classes": sorted(self._classes), "replacements": self._replacements}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what has been replaced, whatever kind of trigger counted it."""
        classes, self._replacements = take(
            state, classes=List(Integer(below=self.classes)), replacements=Integer()
        )
        self._classes = frozenset(classes)
