"""How much a server accepts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """What a server accepts, and how long anyone waits.

    Args:
        body: bytes of a request.
        pixels: of an uploaded image, before it is resized.
        images: in a request, and in a batch.
        streams: that are known, in memory or saved.
        queue: requests in progress; more are refused.
        wait: seconds that a request waits for others to share its batch.
        timeout: seconds until a request is given up.
    """

    body: int = 16 << 20
    pixels: int = 32_000_000
    images: int = 64
    streams: int = 10_000
    queue: int = 512
    wait: float = 0.003
    timeout: float = 30.0
