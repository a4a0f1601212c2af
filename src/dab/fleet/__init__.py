"""Many streams, one model: each stream has its own norm parameters, memory, output and guard."""

from dab.fleet.fleet import Fleet
from dab.fleet.stream import Stream

__all__ = ["Fleet", "Stream"]
