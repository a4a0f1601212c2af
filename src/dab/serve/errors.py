"""Why a request is not answered, with its status code."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BusyError",
    "FullError",
    "HeldError",
    "LostError",
    "ModelError",
    "QueueTimeoutError",
    "RefusedError",
    "RunTimeoutError",
    "TooLargeError",
    "UnknownStreamError",
]


class RefusedError(Exception):
    """Base class."""

    status: ClassVar[int]
    again: ClassVar[bool] = False  # whether it is worth trying again


class BusyError(RefusedError):
    """As many requests as allowed are in progress."""

    status, again = 429, True


class FullError(RefusedError):
    """There are as many streams as allowed."""

    status = 507


class UnknownStreamError(RefusedError):
    """There is no stream of this name."""

    status = 404


class TooLargeError(RefusedError):
    """A body or an image exceeds its limit."""

    status = 413


class QueueTimeoutError(RefusedError):
    """The time limit passed before the model saw the images."""

    status, again = 503, True


class RunTimeoutError(RefusedError):
    """The time limit passed after the model began with the images, so it may learn from them."""

    status = 504


class HeldError(RefusedError):
    """Another replica has the stream.

    Args:
        stream: its name.
        owner: the id of the replica.
    """

    status, again = 503, True

    def __init__(self, stream: str, owner: str) -> None:
        super().__init__(stream, owner)
        self.stream, self.owner = stream, owner

    def __str__(self) -> str:
        return (
            f"stream {self.stream!r} belongs to replica {self.owner}, which has not let go of it: "
            "try again"
        )


class LostError(RefusedError):
    """The replica that had the request has died."""

    status, again = 503, True


class ModelError(RefusedError):
    """The model could not answer."""

    status = 500
