"""What every server of this package does: loopback, safe headers, no patience with slow clients."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "LOOPBACK", "PATIENCE", "SafeHeaders", "host_names", "impatient", "listen"]

LOOPBACK = "127.0.0.1"
PATIENCE = 20.0  # seconds that a client may take to send a request, or to read any of the response

# On every response. Nothing may embed the page, guess the type of a response, or keep a copy.
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


class SafeHeaders:
    """Adds `HEADERS` to every response that does not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import MutableHeaders

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)


def host_names(hosts: Collection[str]) -> list[str]:
    """The names to accept in requests: these and localhost, or any if 0.0.0.0 is among them.

    Other names are refused, so that no other site can read a page through a name that it controls
    (DNS rebinding).
    """
    return ["*"] if "0.0.0.0" in hosts else [*hosts, LOOPBACK, "localhost"]


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A listening socket; port 0: any free one."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise OSError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


def impatient(patience: float) -> Any:
    """Uvicorn's protocol with a time limit wherever it waits for the client.

    Uvicorn itself only limits the time between a response and the next request.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # A small kernel buffer; a large one would hide for long that the client does not read.
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            # Head and body are two writes: the second would wait for a delayed ACK, 40 ms. asyncio
            # sets this too, but not for sockets of `socket.create_server`.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._unread, self._timer = 0, self.loop.call_later(patience, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._timer.cancel()  # the request is complete: the client is waiting

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete:  # otherwise the next request has already arrived
                self._wait()  # until the client reads and sends the next request

        def _wait(self) -> None:
            self._timer.cancel()
            self._unread = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(patience, self._look)

        def _look(self) -> None:
            unread = self.transport.get_write_buffer_size()
            if unread < self._unread:  # slow, but reading
                self._wait()
            else:
                self.transport.abort()

    return Impatient
