"""The page of a report, served while runs are in progress."""

from __future__ import annotations

import hashlib
import html
import json
import socket
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from dab.report.collect import NoRunsError
from dab.report.page import policy, render, to_json
from dab.report.report import gather
from dab.utils.files import Location

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["application", "listen", "serve", "server"]

LOOPBACK = "127.0.0.1"
PATIENCE = 20.0  # seconds that a client may take to send a request, or to read any of the response
CONNECTIONS = 100  # at a time

WAITING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<meta name="color-scheme" content="light dark">
<title>dab</title>
<p>Waiting for a run.</p>
<pre>{}</pre>
</html>
"""

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


def application(
    out: Location, *, every: float = 3.0, hosts: Collection[str] = (LOOPBACK,)
) -> Starlette:
    """A server of a folder's page.

    Args:
        out: the folder of the results; it may still be empty.
        every: seconds after which an open page requests new data.
        hosts: host names to accept in addition to localhost; 0.0.0.0: any. Other names are
            refused, so that no other site can read the page through a name that it controls
            (DNS rebinding).
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route

    own = policy(connect="'self'") + "; frame-ancestors 'none'"

    def page(request: Request) -> Response:
        try:
            content = render(gather(out, now=time.time()), refresh=every)
        except NoRunsError as error:
            return HTMLResponse(WAITING.format(html.escape(str(error))))
        except (ValueError, OSError) as error:
            return HTMLResponse(html.escape(str(error)), status_code=500)
        return HTMLResponse(content, headers={"content-security-policy": own})

    def news(request: Request) -> Response:
        try:
            found = to_json(gather(out, now=time.time()))
        except (ValueError, OSError) as error:
            return Response(json.dumps({"error": str(error)}), 500, media_type="application/json")
        content = json.dumps(found, separators=(",", ":"), allow_nan=False).encode()
        tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type="application/json")

    names = ["*"] if "0.0.0.0" in hosts else [*hosts, LOOPBACK, "localhost"]
    return Starlette(
        routes=[Route("/", page), Route("/data.json", news)],
        middleware=[
            Middleware(_Headers),
            Middleware(TrustedHostMiddleware, allowed_hosts=names),
        ],
    )


class _Headers:
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


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A listening socket; port 0: any free one."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise OSError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


def server(app: Starlette, *, patience: float = PATIENCE) -> uvicorn.Server:
    """A server that drops clients that are too slow.

    Args:
        app: what to serve.
        patience: seconds that a client may take to send a request, or to read any of a response.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        http=_impatient(patience),
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
        limit_concurrency=CONNECTIONS,
    )
    return uvicorn.Server(config)


def _impatient(patience: float) -> Any:
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


def serve(
    out: Location, listening: socket.socket, *, host: str = LOOPBACK, every: float = 3.0
) -> None:
    """Serve the page of a folder until interrupted, to clients that use its name or address."""
    hosts = (host.lower(), listening.getsockname()[0])
    server(application(out, every=every, hosts=hosts)).run(sockets=[listening])
