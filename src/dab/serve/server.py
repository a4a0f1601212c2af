"""Runs the application on a socket, until a signal ends it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from dab.utils.web.server import PATIENCE, impatient

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["run", "server"]

GRACE = 10  # seconds for requests in progress when the server is told to stop
CONNECTIONS = 4096  # at a time; most of them wait for the next image of their stream


def server(app: Starlette, *, patience: float = PATIENCE) -> uvicorn.Server:
    """A server that drops clients that are too slow, and logs as the rest of the program does."""
    config = uvicorn.Config(
        app,
        http=impatient(patience),
        loop="asyncio",  # also where uvloop is installed
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=int(patience),
    )
    return uvicorn.Server(config)


def run(app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, then answer what was accepted and save."""
    server(app).run(sockets=[listening])
