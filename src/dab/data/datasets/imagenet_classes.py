"""The classes of ImageNet, and the 109 of them that DomainNet has too."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["D109", "INDEX", "WNIDS", "Shared"]

WNIDS = tuple(Path(__file__).with_name("imagenet_wnids.txt").read_text().split())
"""The WordNet ids of the 1,000 classes, in the order of the logits."""

INDEX: Mapping[str, int] = {wnid: index for index, wnid in enumerate(WNIDS)}
"""The index of the logit of each WordNet id."""


class Shared(NamedTuple):
    """A class of both: its name and folders in DomainNet, and the index of its ImageNet logit."""

    name: str
    folders: tuple[str, ...]
    logit: int


def _shared() -> tuple[Shared, ...]:
    with Path(__file__).with_name("imagenet_d109.csv").open(newline="") as table:
        return tuple(
            Shared(
                row["class"], tuple(row["domainnet_folders"].split()), int(row["imagenet_index"])
            )
            for row in csv.DictReader(table)
        )


D109 = _shared()
"""The classes of ImageNet-D109, by label."""
