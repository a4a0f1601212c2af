"""Streams: the images of a benchmark in the order in which a model sees them."""

from dab.streams.orders import by_track, correlated, dirichlet, shuffled
from dab.streams.setting import Setting
from dab.streams.shard import Shard
from dab.streams.stream import Batch, Domain, Stream

__all__ = [
    "Batch",
    "Domain",
    "Setting",
    "Shard",
    "Stream",
    "by_track",
    "correlated",
    "dirichlet",
    "shuffled",
]
