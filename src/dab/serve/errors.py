"""Why a request is not answered, with its status code."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "BusyError",
    "FullError",
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


class ModelError(RefusedError):
    """The model could not answer."""

    status = 500
