"""The page of a report, served while runs are under way."""

from __future__ import annotations

import hashlib
import html
import json
import socket
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from dab.report.data import NoRunsError, gather
from dab.report.page import render
from dab.utils.files import Location

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["application", "listen", "serve"]

LOOPBACK = "127.0.0.1"

WAITING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<meta name="color-scheme" content="light dark">
<title>dab</title>
<p>{}: waiting for a run.</p>
</html>
"""


def application(
    out: Location, *, every: float = 3.0, hosts: Collection[str] = (LOOPBACK,)
) -> Starlette:
    """A server of the page of a folder.

    Args:
        out: the folder of the results; it may be empty as yet.
        every: seconds after which an open page asks for news.
        hosts: the names that it is asked by, besides localhost; 0.0.0.0 is any. Other names are
            refused, so that no page of another site that a browser has open can read this one by
            a name of its own.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route

    def page(request: Request) -> Response:
        try:
            return HTMLResponse(render(gather(out), refresh=every))
        except NoRunsError:
            return HTMLResponse(WAITING.format(html.escape(str(out))))
        except (ValueError, OSError) as error:
            return HTMLResponse(html.escape(str(error)), status_code=500)

    def news(request: Request) -> Response:
        try:
            # By the minute, or nothing would ever be as it was.
            found = {**gather(out), "now": time.time() // 60 * 60}
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
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names)],
    )


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that listens; port 0 is any that is free."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise OSError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


def serve(
    out: Location, listening: socket.socket, *, host: str = LOOPBACK, every: float = 3.0
) -> None:
    """Serve the page of a folder until interrupted, to those who ask by the name or the address."""
    import uvicorn

    hosts = (host.lower(), listening.getsockname()[0])
    config = uvicorn.Config(application(out, every=every, hosts=hosts), log_level="warning")
    uvicorn.Server(config).run(sockets=[listening])
